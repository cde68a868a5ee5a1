"""Codes E12.. and E13..: data and caches. See `CODES` in `mezzotint.codes`."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E1200": "The data set cannot be used as it is.",
    "E1201": "A folder of data.path does not exist, is a file, or cannot be read; or data.path is empty.\n"
    "Relative paths are looked up next to the recipe, then in the current folder.",
    "E1202": "The data set has no usable image.",
    "E1203": "Images have no caption.\n"
    "Captions are text files of the same name next to the images (UTF-8, .txt or .caption). "
    "data.captions.source=filename uses file names; data.captions.missing=skip leaves such images out, empty trains "
    "them with the empty caption.",
    "E1204": "One image has two caption files whose texts differ.",
    "E1205": "Too many files cannot be used.\n"
    "Up to 20, or the share data.max_skipped if that is more, are left out and reported; more is probably a mistake. "
    "data_report.jsonl in the run folder names files and reasons.",
    "E1206": "An image cannot be used.\n"
    "It is not a regular file, has an unknown format, is damaged, has more pixels than data.max_pixels, or float "
    "pixels of unknown range.",
    "E1207": "The data set does not fill one batch.\n"
    "With data.remainder=drop every bucket needs at least data.batch_size images; short trains smaller batches, fill "
    "repeats images.",
    "E1208": "An epoch would have more than 2³¹ − 1 visits.",
    "E1209": "The processes of one run see different data.\n"
    "Another program was still writing to data.path while they started, or the machines hold different copies.",
    "E1210": "No table of the data set was found, or several that could be meant.\n"
    "data.format=metadata reads one metadata.jsonl, metadata.csv or metadata.parquet per folder, with a column "
    "file_name; if there is none, .parquet and .arrow files that contain the images.",
    "E1211": "A table cannot be read.\n"
    "Usual causes: a file that is not UTF-8, a JSON array instead of one object per line, a quote that is not closed, "
    "a Git LFS pointer.",
    "E1212": "A table lacks a column that data.columns names, has it twice, or it has another type.",
    "E1213": "Rows of a table name files outside its own folder.\n"
    "A table from somebody else must not access other files of this machine.",
    "E1214": "The packages that read parquet and arrow files and data sets of the hub are not installed.",
    "E1215": "A data set of the Hugging Face hub is not in the local cache and could not be fetched.\n"
    "There is no network, no such name, or it needs a login.",
    "E1216": "The data set has no split named data.split.\nSplits are recognised by names of files and folders.",
    "E1218": "Shuffled tags do not work with a text cache that stores one order of each caption.\n"
    "Every visit would see the same order.",
    "E1219": "Flow-matching models (sd3, flux and others) cannot be sampled this way.\n"
    "They are sampled with euler, heun or unipc, at the noise levels of their own pipeline.",
    "E1220": "The model has no guidance input, or was distilled to need none.",
    "E1221": "The model was distilled to few steps; ordinary training destroys its few-step sampling.",
    "E1222": "The model folder is not one that the family reads.\n"
    "It belongs to another family, is a variant that is not supported, or lacks a part.",
    "E1230": "A clip cannot be used.\n"
    "It is not a regular file, has an unknown format, is a playlist, audio only, damaged or truncated, has more "
    "pixels per frame than data.max_pixels, frames of different sizes, or ends before a requested frame. Clips are "
    "decoded once when the data set is indexed.",
    "E1233": "Decoding took longer than `data.decode_timeout`.\n"
    "At the start such a sample is left out and named; later it ends the run, which continues from its newest "
    "checkpoint when it is started again.",
    "E1250": "An image that was readable when the data set was indexed cannot be read any more.\n"
    "It was removed, replaced or truncated, or its disk is gone.",
    "E1251": "A file's content has changed although its size and times are the same.\n"
    "Its key in the cache would be wrong. Run `touch` on it, or delete the data index.",
    "E1260": "Captions cannot be edited here, or not to this.\n"
    "Captions are edited in .txt and .caption files next to the images, and in metadata.jsonl, .csv and .parquet; "
    "links and names that lead out of the folder are refused.",
    "E1261": "Captions changed since they were shown, so an edit of them was refused.",
    "E1262": "An edit cannot be undone or redone, because its files changed since.",
    "E1263": "The journal of edits, .mezzotint/edits in the data folder, is not valid.",
    "E1264": "A mezzotint.jsonl beside images is not valid.\n"
    "Each line is one object: file, the name of an image in the same folder; exclude, true or false; crop, [left, top, "
    "right, bottom] as shares of the image; rotate, 0, 90, 180 or 270 degrees clockwise; review, true or false. Crop "
    "and rotation are for images, not for clips.",
    "E1265": "Captions are half edited, so they are not read.\n"
    "An edit was interrupted and the folder cannot be written to finish it, or edits go on while the data are read.",
    "E1266": "`mezzotint caption` wrote no caption for some images.\n"
    "The command or the model failed for them, or gave no text. The same command line again tries only those.",
    "E1267": "A model cannot write captions.\n"
    "`mezzotint caption --model` takes the folder of a model that transformers reads as image-text-to-text, with its "
    "processor and weights as safetensors. Code in the folder is not run.",
    "E1268": "Masks cannot be changed while a run reads them.\n"
    "A run keeps the captions, crops and exclusions that it started with, but reads mask files at each visit.",
    "E1280": "A tar shard (data.format=webdataset) cannot be read to its end.\n"
    "It is empty, compressed, damaged or was truncated by a download. Samples are read by their position in the "
    "shard, so nothing after the damage can be trusted: download it again, or remove it.",
    "E1281": "data.path does not name tar shards.\n"
    "Write their folder, one of them, or shards/{000..011}.tar, on a disk or on object storage (s3://bucket/shards).",
    "E1290": "The package that reads clips is not installed.",
    "E1291": "data.clips.images_path has too few images.\n"
    "Each clip needs data.clips.images different ones; images_order=groups needs one more, because it leaves out the "
    "last group.",
    "E1292": "The data set has clips and the model trains images.",
    "E1293": "The package that resizes images as OpenCV does is not installed.",
    "E1294": "Samples and condition images (`data.conditions`) do not pair up.\n"
    "A condition image in a folder has the name of its sample, with any extension, in the same subfolder or in none; "
    "without a folder it is in the sample's row of a table, or has its key in a tar shard. Two images of "
    "one name are an error, and so are samples without one; `optional: true` allows samples without one.",
    "E1295": "A condition image has another shape than its sample.\n"
    "It is cropped like its sample, so both need the same aspect ratio, give or take a pixel; sizes may differ.",
    "E1296": "The model does not take the images that it is given, or needs others.\n"
    "A model that edits needs the image before the edit as the condition `source`, one that inpaints regions to fill "
    "(`data.inpaint`, while sampling the conditions `source` and `mask`); FLUX.2 takes any number of images "
    "under any names; other models take none. A single file of FLUX.1 Kontext has the same tensors as one of dev: set "
    "model.task=edit.",
    "E1300": "The cache cannot be read or written.\n"
    "Deleting a cache is always safe: it only contains what can be encoded again.",
    "E1301": "The cache folder cannot be written.\nA complete cache can be read from a folder that is not writable.",
    "E1303": "A cache entry that the run needs is missing or damaged.\nAll processes treat it as absent from now on.",
    "E1304": "The encoder returned NaN, infinity, or values too large for the stored type.\n"
    "The VAE of some models overflows in fp16.",
    "E1305": "Cache entries have another shape than the model's latents or embeddings, although both "
    "name the same encoder.\n"
    "The folder's layout.json was changed or copied from elsewhere. Deleting the folder is safe.",
    "E1306": "`mezzotint cache` was asked to fill the caches of a recipe that uses none.",
    "E1307": "The cache would depend on `run.seed`, and each run draws a new one (`run.seed` is -1).",
    "E1371": "A cache of another trainer does not fit the recipe.\n"
    "Use the model that the cache was encoded with, and buckets of its sizes.",
}
