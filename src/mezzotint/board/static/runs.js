// The list of runs: search, sort and filters in the browser, kept in the address; actions on selected runs.

import { ask, el, follow, localTimes, renew, send, showMessage, storeInUrl, urlValue } from "./page.js";

const byId = (id) => document.getElementById(id);
const list = byId("runs"), find = byId("find"), show = byId("show"), tag = byId("tag"), sort = byId("sort");
/** Columns whose largest value comes first. */
const DESCENDING = ["step", "speed", "changed"];
/** Most changed rows that are reloaded one by one. */
const FEW = 50;
const collator = new Intl.Collator(undefined, { numeric: true });
const view = { sort: urlValue("sort") || "changed", isReversed: urlValue("reversed") === "1" };

const allRows = () => [...list.querySelectorAll("tbody tr")];
const selectedRows = () => allRows().filter((row) => row.querySelector("input").checked);
const tagsOf = (row) => row.dataset.tags.split(",").filter(Boolean);
const keysOf = new WeakMap();
const keyOf = (row) => {
  if (!keysOf.has(row)) keysOf.set(row, JSON.parse(row.dataset.keys));
  return keysOf.get(row)[view.sort] ?? "";
};

/** Sorts and hides rows. A selected row stays in sight, so that no action meets a hidden one. */
function arrange() {
  const rows = allRows(), terms = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) {
    const isShown = (show.value === "all" || (show.value === "archived") === Boolean(row.dataset.archived))
      && (!tag.value || tagsOf(row).includes(tag.value)) && terms.every((term) => row.dataset.text.includes(term));
    row.hidden = !isShown && !row.querySelector("input").checked;
  }
  const sign = DESCENDING.includes(view.sort) !== view.isReversed ? -1 : 1;
  const sorted = rows.map((row) => [keyOf(row), row]).sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (typeof a === "number" ? a - b : collator.compare(a, b));
  });
  if (sorted.some(([, row], index) => row !== rows[index])) {
    const active = document.activeElement;
    rows[0].parentElement.append(...sorted.map(([, row]) => row));
    if (list.contains(active)) active.focus();
  }
  for (const one of list.querySelectorAll("button.sort")) {
    const order = one.dataset.sort === view.sort ? (sign > 0 ? "ascending" : "descending") : null;
    if (order) one.closest("th").setAttribute("aria-sort", order); else one.closest("th").removeAttribute("aria-sort");
  }
  showTags(rows);
  const number = rows.filter((row) => !row.hidden).length;
  byId("count").textContent = number === rows.length ? `${number} run${number === 1 ? "" : "s"}` : `${number} of ${rows.length} runs`;
  byId("filters").hidden = byId("selected").hidden = !rows.length;
  showSelection();
}

/** Offers the tags of all runs in the filter and beside `Add tag`. */
function showTags(rows) {
  const tags = [...new Set([...rows.flatMap(tagsOf), ...(tag.value ? [tag.value] : [])])].sort(collator.compare);
  if (tags.join() === [...tag.options].slice(1).map((one) => one.value).join()) return;
  const chosen = tag.value;
  tag.replaceChildren(el("option", { value: "" }, "any"), ...tags.map((one) => el("option", { value: one }, one)));
  tag.value = chosen;
  byId("tags")?.replaceChildren(...tags.map((one) => el("option", { value: one })));
}

function showSelection() {
  const rows = selectedRows(), changes = byId("changes");
  if (byId("all")) byId("all").checked = rows.length > 0 && allRows().every((row) => row.hidden || rows.includes(row));
  byId("compare").textContent = rows.length ? `Compare selected (${rows.length})` : "Compare selected";
  if (!changes) return;
  changes.hidden = !rows.length;
  changes.querySelector("[data-archive=true]").hidden = rows.every((row) => row.dataset.archived);
  changes.querySelector("[data-archive=false]").hidden = rows.every((row) => !row.dataset.archived);
}

/** Reloads the rows of changed runs: a list of a thousand is not reloaded because one of them trains. */
async function renewRows(names) {
  const rows = new Map(allRows().map((row) => [row.dataset.name, row]));
  if (!rows.size || names.length > FEW) return renew(list);
  const query = new URLSearchParams([["part", "rows"], ...names.map((name) => ["run", name])]);
  const parsed = new DOMParser().parseFromString(await ask(`/?${query}`), "text/html");
  const fresh = new Map([...parsed.querySelectorAll("tbody tr")].map((row) => [row.dataset.name, row]));
  for (const name of names) {
    const old = rows.get(name), row = fresh.get(name);
    if (row) localTimes(row);
    if (old && row) {
      const controls = "a, input", index = [...old.querySelectorAll(controls)].indexOf(document.activeElement);
      row.querySelector("input").checked = old.querySelector("input").checked;
      old.replaceWith(row);
      row.querySelectorAll(controls)[index]?.focus();
    } else if (row) list.querySelector("tbody").prepend(row);
    else if (old) old.remove();
  }
  if (!allRows().length) await renew(list);
}

function choose(key, isReversed) {
  Object.assign(view, { sort: key, isReversed });
  sort.value = key;
  storeInUrl({ sort: key === "changed" ? null : key, reversed: isReversed ? "1" : null });
  arrange();
}

function filter() {
  storeInUrl({ find: find.value || null, show: show.value || null, tag: tag.value || null });
  arrange();
}

async function change(address, facts) {
  const names = selectedRows().map((row) => row.dataset.name);
  try {
    showMessage((await send(address, { runs: names, ...facts })).message);
    for (const row of allRows()) if (names.includes(row.dataset.name)) row.querySelector("input").checked = false;
    await renewRows(names);
  } catch (error) { showMessage(error.message); }
  arrange();
}

find.value = urlValue("find") || "";
show.value = ["archived", "all"].includes(urlValue("show")) ? urlValue("show") : "";
if (urlValue("tag")) tag.append(el("option", { value: urlValue("tag") }, urlValue("tag")));
tag.value = urlValue("tag") || "";
sort.value = view.sort;
if (!sort.value) { view.sort = "changed"; sort.value = "changed"; }
find.addEventListener("input", filter);
show.addEventListener("change", filter);
tag.addEventListener("change", filter);
sort.addEventListener("change", () => choose(sort.value, false));
list.addEventListener("change", ({ target }) => {
  if (target.id === "all") for (const row of allRows()) row.querySelector("input").checked = target.checked && !row.hidden;
  showSelection();
});
list.addEventListener("click", (event) => {
  const button = event.target.closest("button.sort"), link = event.target.closest("a.tag");
  if (button) choose(button.dataset.sort, button.dataset.sort === view.sort && !view.isReversed);
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    tag.value = link.dataset.tag;
    filter();
  }
});
byId("changes")?.addEventListener("click", ({ target }) => {
  const { archive, tagging } = target.dataset, name = byId("new-tag").value.trim();
  if (archive) change("/api/notes", { archived: archive === "true" });
  if (tagging && !name) byId("new-tag").focus();
  else if (tagging) change("/api/notes", { [tagging]: [name] });
  if (target.id === "delete") change("/api/trash", {});
});
byId("new-tag")?.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return; // it would compare
  event.preventDefault();
  byId("changes").querySelector("[data-tagging=add]").click();
});
arrange();
const events = follow("/live", async (names) => { await renewRows([...names]); arrange(); });
let isOpen = false;
events.addEventListener("open", () => {
  if (isOpen) renew(list).then(arrange).catch((error) => showMessage(error.message)); // the page was cut off meanwhile
  isOpen = true;
});
