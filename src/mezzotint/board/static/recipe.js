import { askJSON, el, showMessage, send } from "./page.js";

const form = document.getElementById("form"), fields = new Map();
for (const box of form.querySelectorAll(".field")) fields.set(box.dataset.path, { box, input: box.querySelector("input, select, textarea"), wrong: box.querySelector(".wrong") });
const find = document.getElementById("find"), only = document.getElementById("only");
let text = null, timer = 0, asked = 0;

const changes = () => Object.fromEntries([...fields].filter(([, { input }]) => input.value !== input.dataset.base).map(([path, { input }]) => [path, input.value]));
const formValues = (more = {}) => ({ base: form.dataset.base, ...(text ? { text } : {}), changes: changes(), ...more });

function keepAddress(changed) {
  const query = new URLSearchParams([["base", form.dataset.base], ...Object.entries(changed).map(([path, value]) => ["set", `${path}=${value}`])]);
  history.replaceState(null, "", `/recipe?${query}`);
}

/** Marks the field that has a problem, and returns a paragraph with a link to it. */
function markProblem(one) {
  const field = fields.get(one.where) || fields.get(one.where.replace(/(\.\d+)+$/, ""));
  const message = `${one.code} ${one.what}`;
  if (field) {
    field.wrong.textContent = message;
    field.wrong.hidden = false;
    field.box.classList.add("bad");
    field.input.setAttribute("aria-invalid", "true");
  }
  const where = one.where ? el("code", {}, one.where) : null;
  return el("p", { class: "problem" }, field ? el("a", { href: `#${field.input.id}` }, where) : where, one.where ? " " : "", message);
}

async function live() {
  const changed = changes(), number = ++asked;
  for (const [path, { box }] of fields) box.classList.toggle("changed", path in changed);
  if (!text) keepAddress(changed);
  const answer = await send("/api/recipe", formValues());
  if (number !== asked) return;
  for (const { box, wrong, input } of fields.values()) { wrong.hidden = true; box.classList.remove("bad"); input.removeAttribute("aria-invalid"); }
  document.getElementById("problems").replaceChildren(...answer.problems.map(markProblem));
  document.getElementById("command").textContent = answer.command;
  document.getElementById("yaml").textContent = answer.yaml || "The recipe is not valid; see the problems above.";
}

const checkParts = ["verdict", "check-problems", "checked"].map((id) => document.getElementById(id));

/** Removes the result of a check, which applied to earlier values of the form. */
const clearCheck = () => checkParts.forEach((one) => { one.replaceChildren(); one.hidden = true; });

const soon = () => { clearCheck(); clearTimeout(timer); timer = setTimeout(() => live().catch((error) => showMessage(error.message)), 200); };

let meant = new Set();  // settings that the search means, whatever words they contain
let searched = 0, searchTimer = 0;

/** Names the settings that the search means, also by names of other trainers. */
async function findMeant() {
  const number = ++searched, words = find.value.trim(), best = document.getElementById("best");
  const found = words ? await askJSON(`/api/settings?${new URLSearchParams({ q: words })}`) : [];
  if (number !== searched) return;
  meant = new Set(found.map((one) => one.path));
  best.hidden = !found.length;
  best.replaceChildren("Best: ", ...found.flatMap(({ path, why }, index) => [
    index ? ", " : "", el("a", { href: `#f-${path}` }, el("code", {}, path)), why ? ` (${why})` : ""]));
  filter();
}

const opened = new Map();  // which sections were open before the search

function filter() {
  const terms = find.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of form.querySelectorAll(".section")) {
    let left = 0;
    for (const box of section.querySelectorAll(".field")) {
      const content = `${box.dataset.path} ${box.textContent}`.toLowerCase();
      const isFound = meant.has(box.dataset.path) || terms.every((term) => content.includes(term));
      box.hidden = !(isFound && (!only.checked || box.matches(".set, .changed")));
      left += !box.hidden;
    }
    section.hidden = !left;
    const narrowed = terms.length > 0 || only.checked;
    if (narrowed) opened.set(section, opened.get(section) ?? section.open);
    if (narrowed) section.open = left > 0;
    else if (opened.has(section)) { section.open = opened.get(section); opened.delete(section); }
  }
}

const given = JSON.parse(document.getElementById("changed").textContent);
for (const [path, value] of Object.entries(given)) if (fields.has(path)) fields.get(path).input.value = value;
form.addEventListener("input", soon);
form.addEventListener("change", soon);
find.addEventListener("input", () => {
  if (!find.value.trim()) meant = new Set();
  filter();
  clearTimeout(searchTimer);
  searchTimer = setTimeout(() => findMeant().catch((error) => showMessage(error.message)), 150);
});
only.addEventListener("change", filter);
live().catch((error) => showMessage(error.message));

function button(id, act) {
  document.getElementById(id)?.addEventListener("click", async (event) => {
    event.target.disabled = true;
    try { await act(); } catch (error) { showMessage(error.message); }
    event.target.disabled = false;
  });
}
button("check", async () => {
  const [verdict, problems, output] = checkParts, valuesBefore = JSON.stringify(formValues());
  clearCheck();
  verdict.hidden = false;
  verdict.className = "quiet";
  verdict.textContent = "Checking the recipe, the model and the data …";
  try {
    const answer = await send("/api/check", formValues({ dry: document.getElementById("dry").checked }));
    if (JSON.stringify(formValues()) !== valuesBefore) return;
    verdict.className = answer.status ? "verdict bad" : "verdict good";
    verdict.textContent = answer.verdict;
    const shownPaths = new Set([...document.querySelectorAll("#problems .problem code")].map((one) => one.textContent));
    problems.replaceChildren(...answer.problems.filter((one) => !shownPaths.has(one.where)).map(markProblem));
    problems.hidden = false;
    output.textContent = `$ ${answer.command}\n${answer.text}`;
    output.hidden = false;
  } catch (error) { clearCheck(); throw error; }
});
button("save", async () => {
  const { message, base } = await send("/api/save", formValues({ file: document.getElementById("file").value })), saved = document.getElementById("saved");
  showMessage(message);
  saved.hidden = false;
  saved.replaceChildren(`${message}. `, el("a", { href: `/recipe?${new URLSearchParams({ base })}` }, "Load this file"));
});
document.querySelector(".two").addEventListener("click", (event) => {
  const field = document.getElementById(event.target.closest(".problem a, #best a")?.hash.slice(1) ?? "");
  if (!field) return;
  event.preventDefault();  // shows fields that the search hides, and moves the focus
  find.value = "";
  only.checked = false;
  filter();
  field.closest("details").open = true;
  field.focus();
});
button("start", async () => { location.href = `/run?${new URLSearchParams({ run: (await send("/api/start", formValues())).run })}`; });
button("enqueue", async () => {
  const { message } = await send("/api/queue/add", formValues()), saved = document.getElementById("saved");
  showMessage(message);
  saved.hidden = false;
  saved.replaceChildren(`${message}. `, el("a", { href: "/queue" }, "Show the queue"));
});
button("translate", async () => {
  const container = document.getElementById("translated");
  container.replaceChildren();
  const answer = await send("/api/translate", { dialect: document.getElementById("dialect").value, line: document.getElementById("line").value });
  const take = el("button", { type: "button", class: "plain" }, "Use this recipe");
  take.addEventListener("click", () => { text = answer.yaml; for (const { input } of fields.values()) input.value = input.dataset.base; soon(); });
  container.replaceChildren(...answer.notes.map((note) => el("p", { class: "quiet" }, `note: ${note}`)),
    el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "The command as a recipe" }, answer.yaml), take);
});

