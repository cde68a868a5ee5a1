// A report: what a run's page shows, from what the file carries.

import { embedded } from "./page.js";
import { open } from "./curves.js";
import { Previews } from "./pictures.js";

if (embedded.charts) {
  open();
  new Previews(document.getElementById("previews"), "", embedded.drawn);
}
