import "./frames.js";
import { askJSON, renew, showMessage } from "./page.js";

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
