// Edits of a data set: operations on a selection, and the editor of one image. The server writes the files.

import { frameImages } from "./frames.js";
import { askJSON, el, renew, send, showMessage } from "./page.js";

const area = document.getElementById("editing"), gallery = document.getElementById("gallery");
const { query, view } = area.dataset;
const form = document.getElementById("operation"), preview = document.getElementById("preview");
const picks = () => [...gallery.querySelectorAll(".pick")];
let all = false, last = null;

/** Runs an action of a button; its errors are shown, and nothing else happens meanwhile. */
async function act(button, work) {
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  try { await work(); } catch (error) { showMessage(error.message); }
  button.disabled = false;
  button.removeAttribute("aria-busy");
}

async function reload() {
  await renew(gallery);
  frameImages(gallery);
  for (const part of document.querySelectorAll("#editing details[open] [data-part]")) await renew(part);
  showSelection();
}

/** Sends a change, shows what was done, and the changed samples. */
async function change(path, value) {
  showMessage((await send(`${path}?${view}`, value)).message);
  await reload();
}

// --- selection ---

const selection = () => (all ? { all: true } : { keys: picks().filter((one) => one.checked).map((one) => one.value) });

function showSelection() {
  const number = all ? document.getElementById("steps").dataset.count : picks().filter((one) => one.checked).length;
  document.getElementById("selected").textContent = Number(number)
    ? `${Number(number).toLocaleString("en")} image${Number(number) === 1 ? " is" : "s are"} selected.` : "No image is selected.";
  hidePreview();
}

area.addEventListener("click", (event) => {
  const which = event.target.dataset.select;
  if (!which) return;
  all = which === "all";
  for (const one of picks()) one.checked = which !== "none";
  showSelection();
});
gallery.addEventListener("click", (event) => {
  const pick = event.target.closest(".pick");
  if (!pick) return;
  const boxes = picks(), [from, to] = [boxes.indexOf(last), boxes.indexOf(pick)];
  if (event.shiftKey && from >= 0) for (const one of boxes.slice(Math.min(from, to), Math.max(from, to) + 1)) one.checked = pick.checked;
  last = pick;
  all = false;
  showSelection();
});

// --- operations ---

function hidePreview() { preview.hidden = true; preview.replaceChildren(); }

function showFields() {
  for (const label of form.querySelectorAll("[data-for]")) label.hidden = !label.dataset.for.split(" ").includes(form.kind.value);
  hidePreview();
}
form.addEventListener("input", showFields);
showFields();

form.addEventListener("submit", (event) => {
  event.preventDefault();
  act(form.querySelector("button"), async () => {
    const asked = { ...Object.fromEntries(new FormData(form)), ...selection() };
    const { count, shown, examples } = await send(`/api/data/edit?${view}`, { ...asked, preview: true });
    const apply = el("button", { type: "button" }, `Change ${count.toLocaleString("en")} image${count === 1 ? "" : "s"}`);
    apply.addEventListener("click", () => act(apply, () => change("/api/data/edit", { ...asked, shown })));
    preview.replaceChildren(
      el("p", {}, count ? `${count.toLocaleString("en")} of the selected images change.` : "Nothing would change."),
      el("dl", {}, ...examples.flatMap(([key, before, after]) => [
        el("dt", {}, key), before || after ? el("dd", {}, el("del", {}, before), before ? " → " : "", el("ins", {}, after || "(empty)")) : null,
      ])), count ? apply : null,
    );
    preview.hidden = false;
    if (count) apply.focus();
  });
});

gallery.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "undo" || button?.id === "redo") {
    const redo = button.id === "redo", shown = Number(document.getElementById("steps").dataset[button.id]);
    act(button, () => change("/api/data/step", { redo, shown }));
  } else if (button?.classList.contains("include")) {
    act(button, async () => {
      const asked = { kind: "include", keys: [button.value] };
      const { shown } = await send(`/api/data/edit?${view}`, { ...asked, preview: true });
      await change("/api/data/edit", { ...asked, shown });
    });
  } else if (button?.classList.contains("edit")) {
    openEditor(button.value);
  }
});
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.closest("input[type=text], input[type=search], textarea")) return;
  event.preventDefault();
  document.getElementById(event.shiftKey ? "redo" : "undo").click();
});

for (const details of area.querySelectorAll("details")) {
  details.addEventListener("toggle", () => { if (details.open) renew(details.querySelector("[data-part]")).catch((error) => showMessage(error.message)); });
}
document.getElementById("tags").addEventListener("click", (event) => {
  const button = event.target.closest("[data-tag]");
  if (!button) return;
  form.tag.value = button.dataset.tag;
  if (form.tag.closest("label").hidden) form.kind.value = "remove-tag";
  showFields();
  form.tag.focus();
});

// --- the editor of one image ---

const byId = (name) => document.getElementById(name);
const dialog = byId("editor"), photo = byId("photo"), overlay = byId("overlay"), caption = byId("editor-caption");
const edges = ["left", "top", "right", "bottom"].map((name) => byId(`crop-${name}`)), rotate = byId("rotate"), brush = byId("brush");
const mask = document.createElement("canvas"), shades = mask.getContext("2d", { willReadFrequently: true });  // white is trained
let facts = null, spot = null, drag = null, isPainted = false;

const tool = () => dialog.querySelector("[name=tool]:checked").value;
const readCrop = () => edges.map((one) => Number(one.value.replace(",", ".")) / 100);

function loadImage(address) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => failed(new Error("The image can no longer be read."));
    image.src = address;
  });
}

async function openEditor(key) {
  try {
    facts = await askJSON(`/api/data/image?${query}&key=${encodeURIComponent(key)}`);
    const stored = `${query}&key=${encodeURIComponent(key)}&v=${facts.mask}`;
    const [image, painted] = await Promise.all([loadImage(`/sample?${query}&row=${facts.row}&whole=1`), facts.mask ? loadImage(`/mask?${stored}`) : null]);
    const share = Math.min(1, 1024 / Math.max(image.naturalWidth, image.naturalHeight));
    for (const canvas of [photo, overlay, mask]) [canvas.width, canvas.height] = [Math.round(image.naturalWidth * share), Math.round(image.naturalHeight * share)];
    photo.getContext("2d").drawImage(image, 0, 0, photo.width, photo.height);
    fillMask(painted);
  } catch (error) { showMessage(error.message); return; }
  byId("editor-name").textContent = facts.name;
  byId("editor-problem").textContent = facts.problem;
  byId("editor-problem").hidden = !facts.problem;
  caption.value = facts.caption;
  facts.crop.forEach((share, i) => { edges[i].value = String(Number((share * 100).toFixed(3))); });
  rotate.value = String(facts.rotate);
  byId("mask-note").textContent = facts.masks || "Red is not trained. Masks are used with data.mask.source=files.";
  spot = [photo.width / 2, photo.height / 2];
  isPainted = false;
  showState();
  draw();
  if (dialog.open) return;
  dialog.append(byId("toast"));  // messages are shown above the dialog
  dialog.showModal();
  caption.focus();
}

/** Which buttons of the editor can be used. */
function showState() {
  caption.disabled = byId("save-caption").disabled = Boolean(facts.problem);
  byId("accept").hidden = !facts.review;
  byId("save-mask").disabled = Boolean(facts.masks);
  byId("drop-mask").disabled = Boolean(facts.masks) || !facts.mask;
}

function fillMask(painted) {
  shades.fillStyle = "#fff";
  shades.fillRect(0, 0, mask.width, mask.height);
  if (painted) shades.drawImage(painted, 0, 0, mask.width, mask.height);
}

function draw() {
  const context = overlay.getContext("2d"), { width, height } = overlay;
  const tint = shades.getImageData(0, 0, width, height), { data } = tint;
  for (let i = 0; i < data.length; i += 4) {
    data[i + 3] = (255 - data[i]) * 0.6;
    [data[i], data[i + 1], data[i + 2]] = [220, 20, 20];
  }
  context.putImageData(tint, 0, 0);
  const [left, top, right, bottom] = readCrop().map((share, i) => share * (i % 2 ? height : width));
  context.fillStyle = "rgb(0 0 0 / 55%)";
  context.beginPath();
  context.rect(0, 0, width, height);
  context.rect(left, top, right - left, bottom - top);
  context.fill("evenodd");
  if (tool() !== "crop") {
    context.lineWidth = Math.max(1, width / 300);
    for (const [colour, more] of [["#000", context.lineWidth], ["#fff", 0]]) {
      context.strokeStyle = colour;
      context.beginPath();
      context.arc(...spot, radius() + more, 0, 7);
      context.stroke();
    }
  }
  overlay.style.rotate = photo.style.rotate = `${rotate.value}deg`;
}

const radius = () => (Number(brush.value) / 200) * Math.max(mask.width, mask.height);

function paint(from, to) {
  shades.strokeStyle = tool() === "ignore" ? "#000" : "#fff";
  shades.lineWidth = 2 * radius();
  shades.lineCap = "round";
  shades.beginPath();
  shades.moveTo(...from);
  shades.lineTo(to[0] + 0.01, to[1]);
  shades.stroke();
  isPainted = true;
}

/** Where a pointer is on the image: offsets are in the element's own coordinates, also when it is rotated. */
const place = (event) => [event.offsetX * (overlay.width / overlay.clientWidth), event.offsetY * (overlay.height / overlay.clientHeight)];

overlay.addEventListener("pointerdown", (event) => {
  overlay.setPointerCapture(event.pointerId);
  drag = spot = place(event);
  if (tool() !== "crop") paint(spot, spot);
  draw();
});
overlay.addEventListener("pointermove", (event) => {
  const at = place(event);
  if (drag && tool() === "crop") {
    const shares = [drag, at].map(([x, y]) => [x / overlay.width, y / overlay.height].map((one) => Math.min(1, Math.max(0, one))));
    [0, 1].forEach((side) => [Math.min, Math.max].forEach((choose, far) => {
      edges[side + 2 * far].value = (choose(shares[0][side], shares[1][side]) * 100).toFixed(1);
    }));
  } else if (drag) paint(spot, at);
  spot = at;
  if (drag || tool() !== "crop") draw();
});
overlay.addEventListener("pointerup", () => { drag = null; });
overlay.addEventListener("keydown", (event) => {
  const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (tool() === "crop" || (!move && event.key !== " ")) return;
  event.preventDefault();
  if (move) spot = [0, 1].map((i) => Math.min([overlay.width, overlay.height][i], Math.max(0, spot[i] + move[i] * radius())));
  else paint(spot, spot);
  draw();
});
for (const input of [...edges, rotate, brush, ...dialog.querySelectorAll("[name=tool]")]) input.addEventListener("input", draw);

const PARTS = { caption: ["caption", "shown"], settings: ["settings", "review"], mask: ["mask"] };

/** Sends a change of one part of this image. Parts that are not saved yet stay as they are on the screen, and are still
    compared with what was in the files when they were shown. */
async function save(button, part, path, value) {
  await act(button, async () => {
    await change(path, value);
    const now = await askJSON(`/api/data/image?${query}&key=${encodeURIComponent(facts.key)}`);
    for (const name of PARTS[part]) facts[name] = now[name];
  });
  showState();
}
const edit = (button, part, value) => save(button, part, "/api/data/edit", { keys: [facts.key], ...value });

byId("save-caption").addEventListener("click", ({ target }) => edit(target, "caption", { kind: "set", text: caption.value, shown: facts.shown }));
byId("save-region").addEventListener("click", ({ target }) => edit(target, "settings", { kind: "region", crop: readCrop(), rotate: Number(rotate.value), shown: facts.settings }));
byId("whole").addEventListener("click", () => {
  [0, 0, 100, 100].forEach((value, i) => { edges[i].value = String(value); });
  rotate.value = "0";
  draw();
});
byId("save-mask").addEventListener("click", ({ target }) => {
  isPainted = false;
  save(target, "mask", "/api/data/mask", { key: facts.key, png: mask.toDataURL("image/png").split(",")[1], shown: facts.mask });
});
byId("drop-mask").addEventListener("click", ({ target }) => {
  fillMask(null);
  isPainted = false;
  draw();
  save(target, "mask", "/api/data/mask", { key: facts.key, png: null, shown: facts.mask });
});
byId("accept").addEventListener("click", ({ target }) => act(target, async () => {
  const next = beside(1);
  if (caption.value !== facts.caption) await send(`/api/data/edit?${view}`, { keys: [facts.key], kind: "set", text: caption.value, shown: facts.shown });
  await change("/api/data/edit", { keys: [facts.key], kind: "accept", shown: facts.settings });
  if (next) await openEditor(next); else dialog.close();
}));
byId("exclude").addEventListener("click", ({ target }) => act(target, async () => {
  const next = beside(1);
  await change("/api/data/edit", { keys: [facts.key], kind: "exclude", shown: facts.settings });
  if (next) await openEditor(next); else dialog.close();
}));

/** The key of the image before or after this one on the page. */
function beside(step) {
  const keys = picks().map((one) => one.value);
  return keys[keys.indexOf(facts.key) + step];
}
const isChanged = () => caption.value !== facts.caption || isPainted;
function leave(go) {
  if (!isChanged() || confirm("Leave without saving the changes?")) go();
}
for (const [name, step] of [["editor-previous", -1], ["editor-next", 1]]) {
  byId(name).addEventListener("click", () => leave(() => { const key = beside(step); if (key) openEditor(key); }));
}
byId("editor-close").addEventListener("click", () => leave(() => dialog.close()));
dialog.addEventListener("cancel", (event) => { if (isChanged()) { event.preventDefault(); leave(() => dialog.close()); } });
dialog.addEventListener("close", () => {
  document.body.append(byId("toast"));
  gallery.querySelector(`.edit[value="${CSS.escape(facts.key)}"]`)?.focus();
});
