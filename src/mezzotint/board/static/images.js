// Previews of a run: a slider over steps, trained and averaged weights side by side, a row for each prompt.

import { askJSON, el, embedded, storeInUrl, urlValue, showMessage } from "./page.js";

const WEIGHTS = [["raw", "trained weights"], ["shadow", "averaged weights"]];
const pad = (number, digits) => String(number).padStart(digits, "0");
export const fileOf = (step, prompt, weights) => `${pad(step, 8)}/${pad(prompt, 2)}-${weights}.png`;
export const address = (run, name, ending = "") => embedded ? embedded.images[name]
  : `/file?run=${encodeURIComponent(run)}&file=${encodeURIComponent(`samples/step-${ending ? name.replace(/\.png$/, ending) : name}`)}`;

export class Previews {
  constructor(container, run, drawn) {
    this.container = container;
    this.run = run;
    this.step = urlValue("image") === null ? null : Number(urlValue("image"));
    this.take(drawn);
  }

  take(drawn) {
    this.drawn = drawn;
    this.existing = new Set(drawn.drawn);
    this.clips = new Set(drawn.clips);
    this.show();
  }

  get index() {
    const steps = this.drawn.steps;
    if (this.step === null) return steps.length - 1;
    const at = steps.findIndex((step) => step >= this.step);
    return at < 0 ? steps.length - 1 : at;
  }

  show() {
    const { steps, prompts } = this.drawn;
    if (!steps.length) {
      this.container.replaceChildren(el("p", { class: "empty" },
        "There are no previews yet. ", el("code", {}, "run.preview.every"), " sets when they are generated, ",
        el("code", {}, "sample.prompts"), " from which prompts."));
      this.slider = null;
      return;
    }
    if (!this.slider) this.build();
    const key = JSON.stringify(prompts) + [...this.existing].map((one) => one.slice(9)).sort().join();
    if (key !== this.key) { this.key = key; this.rows(prompts); }
    this.slider.max = String(steps.length - 1);
    this.slider.value = String(this.index);
    this.turn();
  }

  build() {
    this.slider = el("input", { type: "range", min: "0", id: "at-step", step: "1", "aria-label": "Step of the images" });
    this.output = el("output", { for: "at-step" });
    this.grid = el("div", { class: "previews" });
    this.slider.addEventListener("input", () => {
      const at = Number(this.slider.value);
      this.step = at === this.drawn.steps.length - 1 ? null : this.drawn.steps[at];
      storeInUrl({ image: this.step });
      this.turn();
    });
    this.container.replaceChildren(el("div", { class: "bar" }, el("label", { class: "grow" }, "Step ", this.slider), this.output), this.grid);
  }

  rows(prompts) {
    this.cells = [];
    this.grid.replaceChildren(...prompts.map(({ number, text }) => {
      const shown = WEIGHTS.filter(([kind]) => this.drawn.drawn.some((one) => one.endsWith(`/${pad(number, 2)}-${kind}.png`)));
      return el("div", { class: "prompt" }, el("p", { class: "caption" }, text || "(no caption)"),
        el("div", { class: "pair" }, ...shown.map(([kind, label]) => {
          const box = el("figure", {}, el("div", { class: "frame" }), el("figcaption", { class: "quiet" }, label));
          const cell = { number, kind, label, text, frame: box.firstChild, name: "", box };
          this.cells.push(cell);
          return box;
        })));
    }));
  }

  turn() {
    const step = this.drawn.steps[this.index];
    this.output.textContent = `${step} (${this.index + 1} of ${this.drawn.steps.length})`;
    this.slider.setAttribute("aria-valuetext", `step ${step}`);
    for (const cell of this.cells) {
      const name = fileOf(step, cell.number, cell.kind);
      if (cell.name === name) continue;
      cell.name = name;
      if (!this.existing.has(name)) cell.frame.replaceChildren(el("span", { class: "quiet" }, "none at this step"));
      else if (this.clips.has(name)) {
        cell.frame.replaceChildren(el("video", { src: address(this.run, name, ".mp4"), controls: true, loop: true, muted: true,
          poster: address(this.run, name), "aria-label": `${cell.text}, ${cell.label}, step ${step}` }));
      } else {
        const old = cell.frame.querySelector("img");
        const image = old || el("img", { loading: "lazy" });
        image.src = address(this.run, name);
        image.alt = `${cell.text || "no caption"}, ${cell.label}, step ${step}`;
        if (!old) cell.frame.replaceChildren(el("a", { href: image.src }, image));
        else old.parentElement.href = image.src;
      }
    }
  }

  async renew() { this.take(await askJSON(this.container.dataset.url)); }
}
