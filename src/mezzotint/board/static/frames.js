// The frame that a model sees, over each whole picture.

import { el } from "./page.js";

for (const whole of document.querySelectorAll(".whole")) {
  const [left, top, width, height] = whole.dataset.frame.split(" ").map(Number);
  const crop = el("span", { class: "crop" }), picture = whole.querySelector("img");
  for (const [name, value] of Object.entries({ left, top, width, height })) crop.style[name] = `${value * 100}%`;
  whole.append(crop);
  picture.addEventListener("error", () => whole.replaceChildren(el("span", { class: "quiet" }, "cannot be read any more")));
}
