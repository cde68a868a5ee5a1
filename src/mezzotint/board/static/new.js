import { askJSON, el, send, showMessage, storeInUrl } from "./page.js";

const byId = (id) => document.getElementById(id);
const form = byId("new"), page = crypto.getRandomValues(new Uint32Array(2)).join("-");
const FIELDS = ["goal", "data", "before", "trigger", "model", "memory", "name", "proposal"];
const WORDS = {
  subject: ["sks dog", "A rare word and what it is: you will write it in prompts. Needed where images have no captions."],
  style: ["zwx", "A rare word for the style: you will write it in prompts. Needed where images have no captions."],
  concept: ["zwx pose", "A rare word for the concept, or empty if the captions name it."],
  full: ["", "Empty, if the captions say all. A word here is put before every caption."],
};
/** Settings that the memory does not depend on. */
const FREE = /^(run\.name|run\.steps|optim\.lr|sample\.prompts|data\.captions\.trigger|run\..*\.every)$/;
const SAID = { mend: "Mend", look: "Look at" };

let changed = {};  // rows that were changed by hand
let extra = { changes: {}, rows: [] };  // what fits the run on the card
let isMeasuring = false, proposal = null, cards = null, asked = 0, examined = "", measured = "";
const given = Object.fromEntries(new URLSearchParams(location.search));  // choices that the address names
let listed = 0;  // lists that are filled
const timers = {};
const later = (name, wait, work) => {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(() => work().catch((error) => showMessage(error.message)), wait);
};
const goal = () => form.elements.goal.value;
const choices = () => ({
  goal: goal(), data: byId("data").value, before: byId("before").value, trigger: byId("trigger").value, model: byId("model").value,
  memory: byId("memory").value, name: byId("name").dataset.own ? byId("name").value : "", changed,
});
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

// --- messages ---

const said = {};  // by source, its messages: those of the choices, of the memory, of the doctor

function say(source, messages) {
  said[source] = messages;
  for (const field of FIELDS) {
    const own = Object.values(said).flat().filter((one) => one.field === field), place = byId(`m-${field}`);
    const worst = own.find((one) => one.kind === "wrong") ?? own.find((one) => one.kind === "todo") ?? own[0];
    place.hidden = !worst;
    place.className = `note is-${worst?.kind ?? "empty"}`;
    place.replaceChildren(...own.filter((one) => one.kind === worst?.kind).slice(0, 3).map((one) => el("span", {}, one.text)));
    if (!byId(field)?.matches("input, select")) continue;
    if (worst?.kind === "wrong") byId(field).setAttribute("aria-invalid", "true");
    else byId(field).removeAttribute("aria-invalid");
  }
  showButtons();
}

function showButtons() {
  const isWrong = Object.values(said).flat().some((one) => one.kind === "wrong");
  const isReady = Boolean(proposal?.base) && !proposal.rows.some((row) => row.wrong);
  const hasCard = Number(byId("memory").value) > 0;  // whose memory may ask for further settings
  byId("start").disabled = byId("enqueue").disabled = !isReady || isWrong || (hasCard && (isMeasuring || cards?.length === 0));
  byId("save").disabled = !isReady;
}

// --- lists ---

function fill(select, rows, first) {
  const chosen = select.value || given[select.name] || "";
  select.replaceChildren(...(first === null ? [] : [el("option", { value: "" }, first)]), ...rows);
  if ([...select.options].some((one) => one.value === chosen && !one.disabled)) select.value = chosen;
}

const describe = (row) => [
  ...(row.images || !row.clips ? [count(row.images, "image")] : []), ...(row.clips ? [count(row.clips, "clip")] : []),
  row.captions ? `${row.captions.toLocaleString("en")} with a caption` : "no captions",
].join(", ");

async function listData() {
  const { rows, is_cut } = await askJSON("/api/new/data");
  const options = () => rows.map((row) => el("option", { value: row.name }, `${row.label}: ${describe(row)}`));
  fill(byId("data"), options(), "Choose a folder");
  if (rows.length === 1) byId("a-data").prepend("None of your own yet: put them into a folder there, and reload this page. ");
  fill(byId("before"), options(), "Choose a folder");
  if (is_cut) byId("a-data").textContent = "There are too many folders to search all of them: start the page with the folder of your images.";
}

async function listModels() {
  const { rows, cards: found, is_cut } = await askJSON("/api/new/models");
  const option = (row) => el("option", { value: row.name, disabled: !row.usable, "data-about": row.about }, row.usable ? row.label : `${row.label}: ${row.about}`);
  const usable = rows.filter((row) => row.usable), others = rows.filter((row) => !row.usable);
  fill(byId("model"), [...usable.map(option), ...(others.length ? [el("optgroup", { label: "Not trained from this page" }, ...others.map(option))] : [])], null);
  modelHint = is_cut ? "There are too many folders to search all of them: start the page with the folder of your models."
    : usable.length > 1 ? "" : "Others are found in the folders of this page: start it with that of your models, too (mezzotint board RUNS MODELS).";
  showModel();
  cards = found;
  const memory = byId("memory");
  byId("a-memory").textContent = found.length ? `Found: ${found.map((card) => `${card.name} with ${card.gb} GB`).join(", ")}.`
    : "This computer has no card that Mezzotint can use.";
  if (found.length) {
    const gb = Math.min(...found.map((card) => card.gb));
    if (![...memory.options].some((one) => Number(one.value) === gb)) memory.append(el("option", { value: String(gb) }, `${gb} GB`));
    memory.value = String(gb);
  }
  if ([...memory.options].some((one) => one.value === given.memory)) memory.value = given.memory;
}

let modelHint = "";

/** What the chosen model is, and where others are looked for. */
function showModel() {
  const about = byId("model").selectedOptions[0]?.dataset.about ?? "";
  byId("a-model").textContent = [about && `${about[0].toUpperCase()}${about.slice(1)}.`, modelHint].filter(Boolean).join(" ");
}

// --- the proposal ---

function showGoal() {
  byId("ask-before").hidden = goal() !== "edit";
  byId("ask-trigger").hidden = goal() === "edit";
  document.querySelector("label[for=data]").textContent = goal() === "edit" ? "Images after the edit" : "Images";
  const [word, about] = WORDS[goal()] ?? ["", ""];
  byId("trigger").placeholder = word;
  byId("a-trigger").textContent = about;
}

function showThumbs(data) {
  const box = byId("thumbs"), folder = byId("data").value, files = data.files ?? [], key = `${folder}\n${files.join("\n")}`;
  box.hidden = !files.length;
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const address = (file) => `/thumb/file?${new URLSearchParams({ folder, file, small: 160 })}`;
  const all = data.images + data.clips;
  box.replaceChildren(...files.map((file) => el("img", { src: address(file), alt: file, title: file, loading: "lazy", width: "72", height: "72" })),
    ...(all > files.length ? [el("span", { class: "quiet" }, `and ${(all - files.length).toLocaleString("en")} more`)] : []));
}

/** A text whose parts between backquotes are code. */
const coded = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

function rowOf(row) {
  const id = `r-${row.path || "recipe"}`, text = changed[row.path] ?? row.value, lines = text.split("\n").length;
  const reason = !row.edited ? row.reason : row.path === "run.steps" ? `Yours: ${row.reason}` : `Yours; empty the field for the proposed ${row.proposed || "captions"}.`;
  const value = !row.editable ? el("span", { class: "fixed" }, row.value)
    : row.path === "sample.prompts" ? el("textarea", { id, rows: String(lines), spellcheck: "false", placeholder: "captions of your images", "aria-describedby": `w-${id}` }, text)
      : el("input", { id, type: "text", value: text, inputmode: "decimal", size: "8", "aria-describedby": `w-${id}` });
  if (row.editable) value.dataset.path = row.path;
  if (row.wrong) value.setAttribute("aria-invalid", "true");
  const name = el(row.editable ? "label" : "span", row.editable ? { for: id } : {}, row.label);
  return el("div", { class: row.wrong ? "row bad" : row.edited ? "row edited" : "row" }, el("dt", {}, name, row.path ? el("code", {}, row.path) : null),
    el("dd", {}, value, el("p", { class: row.wrong ? "note is-wrong" : "quiet", id: `w-${id}` }, ...(row.wrong ? [row.wrong] : coded(reason)))));
}

function showRows() {
  const active = document.activeElement?.dataset?.path, at = document.activeElement?.selectionStart;
  byId("rows").replaceChildren(...proposal.rows.map(rowOf));
  const again = active && byId(`r-${active}`);
  if (again) { again.focus(); again.setSelectionRange(at, at); }
}

const allChanges = () => ({ ...proposal.changes, ...extra.changes });
const request = (more = {}) => ({ base: proposal.base, changes: allChanges(), ...more });

function showCommand() {
  const query = new URLSearchParams([["base", proposal.base], ...Object.entries(allChanges()).map(([path, text]) => ["set", `${path}=${text}`])]);
  byId("all").href = proposal.base ? `/recipe?${query}` : "/recipe";
  byId("as-command").hidden = !proposal.base;
}

async function propose() {
  const number = ++asked, chosen = choices();
  if (listed === 2) storeInUrl({ goal: chosen.goal, data: chosen.data, before: chosen.before, trigger: chosen.trigger, model: chosen.model, memory: chosen.memory });
  const answer = await send("/api/new", chosen);
  if (number !== asked) return;
  proposal = answer;
  showThumbs(answer.data);
  if (!byId("name").dataset.own) byId("name").value = answer.name;
  byId("waiting").hidden = Boolean(answer.base);
  byId("waiting").textContent = chosen.data ? "A choice is missing; see the fields." : "Choose the images to get a proposal.";
  byId("proposed").hidden = !answer.base;
  const notes = answer.messages;
  if (Number(chosen.memory) > 0 && cards?.length === 0) notes.push({ field: "memory", kind: "hint", text: "No card was found here: save the recipe, and train it on the computer that has the card." });
  say("choices", notes);
  if (!answer.base) { forget(); showCommand(); return; }
  showRows();
  byId("yaml").textContent = answer.yaml ?? "";
  const isValid = answer.yaml !== undefined;
  const key = JSON.stringify([answer.base, Object.entries(answer.changes).filter(([path]) => !FREE.test(path)), chosen.memory]);
  const dataKey = JSON.stringify([answer.base, ...["data.path", "data.captions.template", "data.resolution", "model.path"].map((path) => answer.changes[path])]);
  if (key !== measured && isValid) { forget(); measured = key; isMeasuring = true; byId("need").textContent = "Computing the memory …"; later("memory", 700, () => measure(key)); }
  if (dataKey !== examined && isValid) { examined = dataKey; examining(); later("doctor", 400, () => examine(dataKey)); }
  showCommand();
  await live();
}

async function live() {
  const answer = await send("/api/recipe", request());
  byId("command").textContent = answer.command;
  byId("yaml").textContent = answer.yaml || byId("yaml").textContent;
}

function forget() {
  measured = "";
  isMeasuring = false;
  extra = { changes: {}, rows: [] };
  byId("need").textContent = "";
  byId("fitting").hidden = true;
  say("memory", []);
}

/** The answer of a command that runs in the background; null once `isCurrent` is false. */
async function result(url, value, isCurrent) {
  for (;;) {
    const answer = await send(url, { page, ...value });
    if (!isCurrent()) return null;
    if (!answer.is_pending) return answer;
    await new Promise((resolve) => { setTimeout(resolve, 300); });
  }
}

async function measure(key) {
  if (key !== measured) return;  // a choice was taken back meanwhile
  const { base, changes } = proposal;
  const answer = await result("/api/new/memory", { base, changes, memory: byId("memory").value }, () => key === measured);
  if (!answer) return;
  extra = { changes: answer.changes, rows: answer.rows };
  isMeasuring = false;
  byId("need").textContent = answer.sentence ? `Needs ${answer.sentence}` : "The memory is not known; see the messages.";
  byId("fitting").hidden = !answer.rows.length;
  byId("fitting").replaceChildren(el("p", {}, `For this card, these settings are changed (${answer.before} without):`),
    el("ul", {}, ...answer.rows.map((row) => el("li", {}, el("code", {}, row.text), " ", el("span", { class: "quiet" }, row.reason)))));
  say("memory", answer.messages);
  showCommand();
  await live();
}

function examining() {
  byId("findings").hidden = false;
  byId("findings").className = "findings quiet";
  byId("findings").textContent = "Examining the images …";
  say("doctor", []);
}

async function examine(key) {
  if (!proposal.base) { examined = ""; return; }
  const { base, changes, data: { images, clips } } = proposal;
  const answer = await result("/api/new/doctor", { base, changes, samples: String(images + clips) }, () => key === examined);
  if (!answer) return;
  const box = byId("findings"), rest = answer.more ? [el("p", { class: "quiet" }, `${count(answer.more, "more finding")}: mezzotint doctor lists them.`)] : [];
  const well = answer.messages.length ? [] : [el("p", { class: "good" }, "Examined: nothing to mend.")];
  box.className = "findings";
  box.hidden = false;
  box.replaceChildren(...(answer.findings.length ? answer.findings.map((one) => el("p", { class: one.status },
    el("b", {}, SAID[one.status] ?? ""), ` ${one.sentence}. `, el("span", { class: "quiet" }, `${one.advice[0]?.toUpperCase() ?? ""}${one.advice.slice(1)}.`))) : well), ...rest,
    ...(answer.about ? [el("p", { class: "quiet" }, answer.about)] : []));
  say("doctor", answer.messages.map((one) => ({ ...one, kind: one.kind === "wrong" ? "wrong" : "hint" })));
}

// --- events ---

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  const { target } = event, path = target.dataset.path;
  if (path) {
    if (target.value.trim()) changed[path] = target.value; else delete changed[path];
  } else if (target.name === "name") target.dataset.own = target.value ? "1" : "";
  else if (["goal", "model", "data"].includes(target.name)) changed = {};
  if (target.name === "goal") showGoal();
  if (target.name === "model") showModel();
  byId("done").textContent = "";
  later("propose", target.type === "text" || target.type === "textarea" ? 300 : 0, propose);
});

const act = (id, work) => byId(id).addEventListener("click", async () => {
  byId(id).disabled = true;
  try { await work(); } catch (error) { showMessage(error.message); byId("done").textContent = error.message; }
  showButtons();
});
act("start", async () => { location.href = `/run?${new URLSearchParams({ run: (await send("/api/start", request())).run })}`; });
act("enqueue", async () => { byId("done").replaceChildren(`${(await send("/api/queue/add", request())).message}. `, el("a", { href: "/queue" }, "Show the queue")); });
act("save", async () => {
  const { message, base } = await send("/api/save", request({ file: `${proposal.name}.yaml` }));
  byId("done").replaceChildren(`${message}. `, el("a", { href: `/recipe?${new URLSearchParams({ base })}` }, "Open it"));
});

for (const one of form.elements.goal) if (one.value === given.goal) one.checked = true;
byId("trigger").value = given.trigger ?? "";
showGoal();
for (const list of [listData, listModels]) {
  list().then(() => { listed += 1; return propose(); }).catch((error) => showMessage(error.message));
}
