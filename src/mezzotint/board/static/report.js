// A report: the page of a run, from the data embedded in the file.

import { embedded } from "./page.js";
import { open } from "./curves.js";
import { Previews } from "./images.js";

if (embedded.charts) {
  open();
  new Previews(document.getElementById("previews"), "", embedded.drawn);
}
