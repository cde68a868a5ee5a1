import { follow, renew, showMessage, send } from "./page.js";
import { open, refresh } from "./curves.js";
import { Previews } from "./images.js";
import { filterSettings } from "./settings.js";
import { renewNotes } from "./notes.js";

const previewsBox = document.getElementById("previews");
const previews = new Previews(previewsBox, previewsBox.dataset.run, JSON.parse(document.getElementById("drawn").textContent));
open().catch((error) => showMessage(error.message));

const log = document.querySelector("pre.log");
if (log) log.scrollTop = log.scrollHeight;

document.getElementById("facts").addEventListener("click", async (event) => {
  const button = event.target.closest("button.act");
  if (!button) return;
  button.disabled = true;
  try {
    showMessage((await send("/api/act", { run: previewsBox.dataset.run, name: button.dataset.act })).message);
  } catch (error) {
    showMessage(error.message);
  }
  button.disabled = false;
});

const allCurves = document.getElementById("all-curves");
allCurves.addEventListener("click", () => {
  const isOpen = document.getElementById("charts").classList.toggle("all");
  allCurves.setAttribute("aria-expanded", String(isOpen));
  allCurves.textContent = isOpen ? "Only the first curve" : "All curves";
});

const part = (id) => renew(document.getElementById(id));
const events = follow(`/live?run=${encodeURIComponent(previewsBox.dataset.run)}`, async (parts) => {
  const has = (...names) => names.some((name) => parts.has(name));
  if (has("gone")) showMessage("The folder of this run was removed or restored.");
  const work = [];
  if (has("metrics", "events", "status", "started")) work.push(part("facts"));
  if (has("notes")) work.push(part("facts"), renewNotes());
  if (has("output", "status", "started")) work.push(part("p-output"));
  if (has("metrics", "events", "stored")) work.push(refresh());
  if (has("images", "drawn")) work.push(previews.renew());
  if (has("stored", "exports")) work.push(part("p-stored"));
  if (has("events")) work.push(part("p-events"), part("p-card"), part("p-description"));
  if (has("log")) work.push(part("p-log"));
  if (has("recipe")) work.push(part("p-settings").then(filterSettings));
  await Promise.all(work);
});
// changes between the rendering of the page and the first event
events.addEventListener("open", () => { Promise.all([part("facts"), part("p-output")]).catch((error) => showMessage(error.message)); });
