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
async function tokens() {
  while (!(await askJSON(`/api/data?${histograms.dataset.counting}`)).counted) await wait(500);
  await renew(histograms);
}
if (histograms?.dataset.counting) tokens().catch((error) => say(error.message));

const near = document.getElementById("near"), button = document.getElementById("look"), more = document.getElementById("look-all");
const count = (number) => number.toLocaleString("en");
let shown = "", everything = false, busy = false;

function show(answer, query) {
  const said = document.getElementById("looked"), number = answer.pairs.length;
  const among = answer.among === answer.all ? `all ${count(answer.all)}` : `the first ${count(answer.among)} of ${count(answer.all)}`;
  const pairs = number === answer.most ? `The nearest ${number} pairs` : number ? `${number} pair${number === 1 ? "" : "s"}` : "None";
  said.textContent = [answer.ready ? `${pairs} among ${among} images.` : "",
    answer.going ? `${count(answer.done)} of ${count(answer.total)} read …` : ""].filter(Boolean).join(" ");
  more.hidden = everything || answer.going || answer.among === answer.all;
  const key = JSON.stringify(answer.pairs);
  if (key === shown) return;
  shown = key;
  const thumb = (row, name) => el("figure", {}, el("div", { class: "frame" }, el("a", { href: `/sample?${query}&row=${row}` },
    el("img", { src: `/thumb?${query}&row=${row}`, alt: name, loading: "lazy" }))), el("figcaption", { class: "quiet" }, name));
  near.replaceChildren(...answer.pairs.map(({ rows, keys, apart }) => el("div", { class: "prompt" },
    el("div", { class: "pair" }, thumb(rows[0], keys[0]), thumb(rows[1], keys[1])),
    el("p", { class: "quiet" }, `mean difference ${apart} of 255`))));
}

async function look() {
  if (busy) return;
  busy = true;
  try {
    for (let answer = { going: true }; answer.going; await wait(answer.going ? 500 : 0)) {
      answer = await askJSON(`/api/near?${button.dataset.query}${everything ? "&all=1" : ""}`);
      show(answer, button.dataset.query);
    }
  } finally { busy = false; }
}
button?.addEventListener("click", () => { button.hidden = true; look().catch((error) => { button.hidden = false; say(error.message); }); });
more?.addEventListener("click", () => { everything = true; more.hidden = true; look().catch((error) => say(error.message)); });
