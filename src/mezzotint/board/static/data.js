import "./frames.js";
import { askJSON, el, renew, showMessage } from "./page.js";

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

const opening = document.getElementById("opening");
async function watch() {
  for (;;) {
    const { ready, done, total } = await askJSON(`/api/data?${opening.dataset.query}`);
    if (ready) { location.reload(); return; }
    if (total > 0) document.getElementById("done").textContent = `: ${done} of ${total}`;
    await wait(500);
  }
}
if (opening) watch().catch((error) => showMessage(error.message));

const histograms = document.getElementById("histograms");
async function tokens() {
  while (!(await askJSON(`/api/data?${histograms.dataset.counting}`)).counted) await wait(500);
  await renew(histograms);
}
if (histograms?.dataset.counting) tokens().catch((error) => showMessage(error.message));

const folders = document.getElementById("folders");
async function list() {
  const { rows, is_cut } = await askJSON("/api/new/data");
  const own = rows.filter(({ name }) => !name.startsWith("shipped:"));
  folders.replaceChildren(...own.map(({ name, label, images, clips, captions }) => el("li", {},
    el("a", { href: `/data?folder=${encodeURIComponent(name)}` }, label), " ",
    el("span", { class: "quiet" }, [[images, "images"], [clips, "clips"], [captions, "captions"]]
      .filter(([count]) => count).map(([count, word]) => `${count} ${word}`).join(", ")))));
  if (!own.length) folders.append(el("li", { class: "quiet" }, "There are no images in the folders of this page."));
  if (is_cut) folders.append(el("li", { class: "quiet" }, "There are too many folders to search all of them."));
  folders.removeAttribute("aria-busy");
}
if (folders) list().catch((error) => showMessage(error.message));
