// The crop that the model sees, as a frame on each image.

import { el } from "./page.js";

for (const whole of document.querySelectorAll(".whole")) {
  const [left, top, width, height] = whole.dataset.frame.split(" ").map(Number);
  const crop = el("span", { class: "crop" }), picture = whole.querySelector("img");
  for (const [name, value] of Object.entries({ left, top, width, height })) crop.style[name] = `${value * 100}%`;
  whole.append(crop);
  const enlarge = () => {  // enlarges a small image, to make its frame visible
    const share = Math.min(3, 180 / picture.naturalWidth, 150 / picture.naturalHeight);
    if (share > 1) picture.style.width = `${Math.round(picture.naturalWidth * share)}px`;
  };
  if (picture.complete && picture.naturalWidth) enlarge();
  else picture.addEventListener("load", enlarge);
  picture.addEventListener("error", () => whole.replaceChildren(el("span", { class: "quiet" }, "no longer readable")));
}
