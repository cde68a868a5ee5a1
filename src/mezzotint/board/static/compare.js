import { el, showMessage } from "./page.js";
import { open } from "./curves.js";
import { address, fileOf } from "./images.js";

// prompts that several runs have in common, each with every run's last image
const container = document.getElementById("compared-previews");
if (container) {
  open().catch((error) => showMessage(error.message));
  const runs = Object.entries(JSON.parse(document.getElementById("drawn").textContent));
  const texts = [...new Set(runs.flatMap(([, drawn]) => drawn.prompts.map((one) => one.text)))];
  const rows = texts.map((text) => {
    const cells = runs.map(([run, drawn]) => {
      const prompt = drawn.prompts.find((one) => one.text === text), existing = new Set(drawn.drawn);
      const kindAt = (one) => ["shadow", "raw"].find((kind) => existing.has(fileOf(one, prompt.number, kind)));
      const step = prompt && drawn.steps.findLast(kindAt);
      if (step === undefined) return null;
      const kind = kindAt(step), src = address(run, fileOf(step, prompt.number, kind));
      const label = `${text}, ${drawn.label}, step ${step}`, name = fileOf(step, prompt.number, kind);
      const shown = drawn.clips.includes(name)
        ? el("video", { src: address(run, name, ".mp4"), controls: true, loop: true, muted: true, poster: src, "aria-label": label })
        : el("a", { href: src }, el("img", { src, loading: "lazy", alt: label }));
      return el("figure", {}, el("div", { class: "frame" }, shown), el("figcaption", { class: "quiet" }, `${drawn.label}, step ${step}, ${kind === "raw" ? "trained" : "averaged"} weights`));
    }).filter(Boolean);
    return { count: cells.length, box: el("div", { class: "prompt" }, el("p", { class: "caption" }, text || "(no caption)"), el("div", { class: "pair" }, ...cells)) };
  }).filter((one) => one.count);
  const shared = rows.filter((one) => one.count > 1), single = rows.filter((one) => one.count === 1);
  if (shared.length) container.append(...shared.map((one) => one.box));
  else if (rows.length) container.append(el("p", { class: "empty" }, "These runs share no prompt. Give them the same ",
    el("code", {}, "sample.prompts"), " to compare their images."));
  if (single.length) container.append(el("h3", {}, "Prompts of only one run"), el("div", { class: "previews" }, ...single.map((one) => one.box)));
  if (!rows.length) container.append(el("p", { class: "empty" }, "None of these runs has previews."));
}
