// The crop that the model sees, as a frame on each image.

import { el } from "./page.js";

/** Frames the images in a part of the page that have no frame yet. */
export function frameImages(part) {
  for (const whole of part.querySelectorAll(".whole")) if (!whole.querySelector(".crop")) frameImage(whole);
}

function frameImage(whole) {
  const [left, top, width, height] = whole.dataset.frame.split(" ").map(Number);
  const crop = el("span", { class: "crop" }), image = whole.querySelector("img");
  for (const [name, value] of Object.entries({ left, top, width, height })) crop.style[name] = `${value * 100}%`;
  whole.append(crop);
  const enlarge = () => {  // enlarges a small image, to make its frame visible
    const share = Math.min(3, 180 / image.naturalWidth, 150 / image.naturalHeight);
    if (share > 1) image.style.width = `${Math.round(image.naturalWidth * share)}px`;
  };
  if (image.complete && image.naturalWidth) enlarge();
  else image.addEventListener("load", enlarge);
  image.addEventListener("error", () => whole.replaceChildren(el("span", { class: "quiet" }, "no longer readable")));
}

frameImages(document);
