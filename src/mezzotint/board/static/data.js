import "./frames.js";
import { askJSON, el, renew, say } from "./page.js";

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
if (opening) watch().catch((error) => say(error.message));

const histograms = document.getElementById("histograms");
async function count() {
  while (!(await askJSON(`/api/data?${histograms.dataset.counting}`)).counted) await wait(500);
  await renew(histograms);
}
if (histograms?.dataset.counting) count().catch((error) => say(error.message));

const near = document.getElementById("near");
async function look() {
  const query = near.dataset.query, said = near.querySelector("span");
  for (;;) {
    const answer = await askJSON(`/api/near?${query}`);
    if (answer.ready) {
      const thumb = (row, key) => el("figure", {}, el("div", { class: "frame" },
        el("img", { src: `/thumb?${query}&row=${row}`, alt: key, loading: "lazy" })), el("figcaption", { class: "quiet" }, key));
      near.replaceChildren(...answer.pairs.map(({ rows, keys, apart }) => el("div", { class: "prompt" },
        el("div", { class: "pair" }, thumb(rows[0], keys[0]), thumb(rows[1], keys[1])),
        el("p", { class: "quiet" }, `shades differ by ${apart} of 255`))));
      near.className = "previews";
      if (!answer.pairs.length) near.replaceChildren(el("p", { class: "empty" }, `None among ${answer.total} of ${answer.all} pictures.`));
      return;
    }
    said.textContent = `${answer.done} of ${answer.total} looked at`;
    await wait(400);
  }
}
document.getElementById("look")?.addEventListener("click", (event) => {
  event.target.disabled = true;
  look().catch((error) => say(error.message));
});
