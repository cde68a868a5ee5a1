import { askJSON, el, showMessage, send } from "./page.js";

const form = document.getElementById("draw"), results = document.getElementById("drawn"), ready = document.getElementById("ready");
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** Shows a small image at a whole multiple of its size, with sharp pixels. */
function enlarge(event) {
  const image = event.target, side = innerWidth < 640 ? 150 : 200;
  const times = Math.floor(side / Math.max(image.naturalWidth, image.naturalHeight, 1));
  image.classList.toggle("enlarged", times > 1);
  image.style.width = times > 1 ? `${image.naturalWidth * times}px` : "";
}

function show(box, job) {
  const command = box.querySelector("code"), images = box.querySelector(".images"), status = box.querySelector(".status");
  command.textContent = job.command;
  status.textContent = job.error || (job.done ? "" : job.of ? `step ${job.step} of ${job.of}` : job.message.at(-1) || "Waiting for the previous image …");
  status.className = job.error ? "status problem" : "status quiet";
  box.querySelector("progress").hidden = job.done;
  box.querySelector("progress").max = job.of || 1;
  box.querySelector("progress").value = job.step;
  if (job.done) {
    images.replaceChildren(...job.files.map((file) => {
      const address = `/image?file=${encodeURIComponent(file)}`;
      return file.endsWith(".mp4") ? el("video", { src: address, controls: true, loop: true, muted: true })
        : el("a", { href: address }, el("img", { src: address, alt: `generated: ${form.elements.prompt.value}`, onload: enlarge }));
    }));
  } else if (job.image) {
    const image = images.querySelector("img") || images.appendChild(el("img", { alt: "the image so far", class: "way", onload: enlarge }));
    image.src = `data:image/webp;base64,${job.image}`;
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const values = Object.fromEntries(new FormData(form));
  history.replaceState(null, "", `/draw?${new URLSearchParams(Object.entries(values).filter(([, value]) => value))}`);
  try {
    const { jobs } = await send("/api/draw", values);
    document.getElementById("none").hidden = true;
    const boxes = new Map(jobs.map((number) => [number, el("figure", { class: "prompt drawing-box" },
      el("div", { class: "images" }), el("progress", { "aria-label": "steps done" }), el("p", { class: "status", role: "status" }),
      el("figcaption", { class: "command" }, el("code"), el("button", { type: "button", class: "copy plain", "aria-label": "Copy the command that generates it again" }, "copy")))]));
    results.prepend(el("div", { class: "pair" }, ...boxes.values()));
    const left = new Set(jobs);
    while (left.size) {
      const query = [...left].map((number) => `job=${number}`).join("&");
      const answer = await askJSON(`/api/drawn?${query}`);
      for (const number of [...left]) {
        const job = answer.jobs[number];
        if (!job) { left.delete(number); continue; }
        show(boxes.get(number), job);
        if (job.done) left.delete(number);
      }
      if (left.size) await wait(150);
    }
  } catch (error) { showMessage(error.message); }
});

(async () => {
  if (!document.getElementById("go")) return;
  for (let number = 0; number < 300; number++) {
    if ((await askJSON("/api/drawn")).ready) { ready.textContent = "ready"; return; }
    ready.textContent = "Loading the model …";
    await wait(300);
  }
})().catch((error) => showMessage(error.message));
