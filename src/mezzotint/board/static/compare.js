import { el, say } from "./page.js";
import { open } from "./curves.js";
import { address, fileOf } from "./pictures.js";

// prompts that several runs have, each run's last picture of it
const place = document.getElementById("beside");
if (place) {
  open().catch((error) => say(error.message));
  const runs = Object.entries(JSON.parse(document.getElementById("drawn").textContent));
  const texts = [...new Set(runs.flatMap(([, drawn]) => drawn.prompts.map((one) => one.text)))];
  const rows = texts.map((text) => {
    const cells = runs.map(([run, drawn]) => {
      const prompt = drawn.prompts.find((one) => one.text === text), there = new Set(drawn.drawn);
      const step = prompt && drawn.steps.findLast((one) => there.has(fileOf(one, prompt.number, "raw")));
      if (step === undefined) return null;
      const kind = there.has(fileOf(step, prompt.number, "shadow")) ? "shadow" : "raw";
      return el("figure", {}, el("div", { class: "frame" }, el("img", {
        src: address(run, fileOf(step, prompt.number, kind)), loading: "lazy", alt: `${text}, ${run}, step ${step}`,
      })), el("figcaption", { class: "quiet" }, `${run}, step ${step}`));
    });
    return cells.every((one) => one === null) ? null
      : el("div", { class: "prompt" }, el("p", { class: "words" }, text || "(no caption)"), el("div", { class: "pair" }, ...cells));
  });
  place.replaceChildren(...rows.filter(Boolean));
  if (!place.children.length) place.append(el("p", { class: "empty" }, "None of these runs has drawn a picture."));
}
