// The table of settings: full-text search; defaults are hidden unless requested.

import { keep, kept } from "./page.js";

const searched = document.getElementById("find"), defaults = document.getElementById("defaults");

export function filterSettings() {
  const words = searched.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of document.querySelectorAll("table.settings tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !(words.length ? words.every((word) => text.includes(word)) : defaults.checked || !row.classList.contains("default"));
  }
  keep({ find: searched.value || null, defaults: defaults.checked ? "1" : null });
}

if (searched && defaults) {
  searched.value = kept("find") || "";
  defaults.checked = kept("defaults") === "1";
  searched.addEventListener("input", filterSettings);
  defaults.addEventListener("change", filterSettings);
  filterSettings();
}
