"""Codes E12.. and E13..: data and caches."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E1200": "The data set cannot be used as it is. The message names the file and what to do with it.",
    "E1201": "A folder of data.path is not there, is a file, or cannot be read; or data.path is empty. Relative paths "
    "are looked up beside the recipe, then in the current folder.",
    "E1202": "The data set has no usable picture. The message says whether the folder is empty, holds other kinds of "
    "files, or holds pictures that cannot be read or were left out by the recipe.",
    "E1203": "Pictures have no caption. Put a text file of the same name beside each (picture.txt or picture.caption, "
    "UTF-8), take captions from file names with data.captions.source=filename, or decide with data.captions.missing "
    "what happens to pictures without one: skip leaves them out, empty trains them with the empty caption.",
    "E1204": "One picture has two caption files whose texts differ. Nobody can tell which is meant: remove one of "
    "them, or make them equal.",
    "E1205": "Too many files cannot be used. Up to 20, or the share data.max_skipped if that is more, are left out "
    "and reported; more than that is taken for a mistake in the data set. data_report.jsonl in the run folder, and "
    "the message, name files and reasons.",
    "E1206": "A picture cannot be used: it is not a regular file, of no known format, damaged, has more pixels than "
    "data.max_pixels, or has float pixels whose range nobody knows. The message has the reason.",
    "E1207": "The data set makes no batch. With data.remainder=drop every bucket needs at least data.batch_size "
    "pictures; data.remainder=short trains smaller batches, fill repeats pictures.",
    "E1208": "An epoch would have more than two thousand million visits. Lower data.repeats.",
    "E1209": "The processes of one run see different data: a picture, caption or number of repeats is not the same "
    "for all. Something was still writing into data.path while they started, or the machines hold different copies. "
    "Make them equal and start again.",
    "E1210": "data.format=metadata found no table to read, or two of which nobody can tell which is meant. It reads "
    "metadata.jsonl, metadata.csv or metadata.parquet in the folder or below it, one to a folder, with a column "
    "file_name; or, where there is none, .parquet and .arrow files that hold the pictures.",
    "E1211": "A table (metadata.jsonl, .csv, .parquet, or a .parquet or .arrow file with pictures) cannot be read as "
    "what its ending says. The message names the file, the line, and what was met: usual causes are a file that is "
    "not UTF-8, a JSON array instead of one object a line, a quote that is not closed, a Git LFS pointer.",
    "E1212": "A table has no column of the name that data.columns gives, has it twice, or it holds another type than "
    "pictures or texts. The message lists the columns that there are.",
    "E1213": "Rows of a table name files outside its own folder: by an absolute path, by `..`, or by a URL. A table "
    "that comes from elsewhere must not reach other files of this machine. Write names relative to the folder of the "
    "table, and put the pictures below it.",
    "E1214": "Parquet and arrow files, and data sets of the hub, are read by packages that are not installed. `pip "
    "install 'mezzotint[data]'` brings them.",
    "E1215": "A data set of the Hugging Face hub is not in the local cache and could not be fetched: there is no "
    "network, no such name, or it asks for a login. Fetch it where there is a network, or give a folder.",
    "E1216": "The data set has no part of the name data.split. Parts are recognised by names of files and folders; the "
    "message lists those that there are.",
    "E1217": "Files beside the pictures that say how they are trained (data.format=everydream: yaml and txt files, "
    "manifests) cannot be read as they are: broken YAML or JSON, an unknown key, a number out of range. The message "
    "names each with its line. Nothing is left out silently, because a folder's file holds for all its pictures.",
    "E1218": "Captions whose tags are shuffled and a text cache that keeps one order of each do not go together: "
    "every visit would see the same order. Set data.cache.shuffles to the number of orders that are drawn and kept, "
    "or encode captions at each visit with data.cache.text=false.",
    "E1219": "A way of drawing that models on straight paths (sd3, flux and their kin) do not know. They are drawn by "
    "euler, heun or unipc, at the levels of noise that their own pipeline visits; the message says what to leave out.",
    "E1220": "The model is given no scale of guidance, or was distilled so that it needs none. The message says which "
    "scale it is drawn or trained with.",
    "E1221": "The model was distilled to few steps, and training it as others are makes those few steps fall apart. "
    "Take the base model, or say in the recipe that the distilled one is meant; the message names the setting.",
    "E1222": "A model's folder is not one that the family reads: of another family, a variant that is not trained "
    "here, or without a part that it needs. The message names what was met, and what to write instead.",
    "E1230": "A clip cannot be used: it is not a regular file, of no known format, a playlist, sound alone, damaged "
    "or cut off, has more pixels in a frame than data.max_pixels, frames of different sizes, or it ends before a "
    "frame that is wanted. The message says which. Clips are decoded once when the data set is indexed, and told by "
    "their content, not by their name.",
    "E1231": "A list of clips cannot be read as one. Each line names a folder and an annotation file, or a folder, a "
    "folder of text embeddings and an annotation file, with commas between them. The message names file and line.",
    "E1232": "An annotation file cannot be read as one: it is a JSON list of objects with `path` (below the folder) "
    "and `cap` (the caption), and for clips, if they are not to be sampled anywhere, `frame_idx` (`start:end`). The "
    "message names file and entry.",
    "E1233": "Decoding a picture or a mask took longer than `data.decode_timeout`, or a clip came no further for so "
    "long. At the start such a sample is left out, by "
    "name; later it ends the run, which goes on from its newest checkpoint when it is started again. Look at the file "
    "and at the disk that it lies on, or raise the limit.",
    "E1250": "A picture that could be read when the data set was indexed cannot be read any more: it was removed, "
    "replaced or cut short, or its disk has gone. The message names the file. Restore it, or start the same command "
    "again: the picture is left out then, and the data report says so.",
    "E1251": "A picture's content is not what the index says although its size and times are the same, so that it has "
    "another address in the cache. `touch` the file, or delete the data index, and start again: it is then read anew.",
    "E1280": "A tar shard (data.format=webdataset) cannot be read to its end: it is empty, compressed, damaged or was "
    "cut off while it was fetched. Shards are plain .tar files; fetch this one again, or take it away. What lies in "
    "it is read by its place, so that nothing behind the damage can be trusted.",
    "E1281": "data.path does not name tar shards: it is a command, or its braces are no range. Write data.path as "
    "their folder, one of them, or shards/{000..011}.tar, on a disk or on object storage (s3://bucket/shards).",
    "E1290": "Clips are read by a package that is not installed. Install it: pip install 'mezzotint[video]'.",
    "E1291": "The data set of pictures that are trained beside clips (data.clips.stills_path) has too few of them: "
    "each clip needs data.clips.stills different ones, and with stills_order=groups one more, since the last group is "
    "left out.",
    "E1292": "The data set has clips and the model trains pictures. Set model.family to one of clips, such as latte, "
    "or data.format to one of pictures.",
    "E1300": "The cache cannot be read or written. It holds nothing that cannot be made again: deleting it is always "
    "safe.",
    "E1301": "The cache folder cannot be written. Make it writable, or set data.cache.path to another folder. A cache "
    "that already holds everything can be read from a folder that cannot be written.",
    "E1303": "A cache entry that the run needs is missing or damaged (its checksum does not fit). It counts as absent "
    "from now on, in all processes. Start the same command again, which makes it anew before training goes on, or run "
    "`mezzotint cache RECIPE` first.",
    "E1304": "The encoder gave values that are not finite (NaN or infinity), or that are too large for the type they "
    "are stored in. Such rows are not cached. Try data.cache.dtype=fp32 and run.frozen_dtype=fp32 (the VAE of some "
    "models overflows in fp16), or leave the named pictures out.",
    "E1305": "A folder of the cache says that its entries have another shape than the model makes, although both name "
    "the same encoder. Its layout.json was changed or comes from elsewhere. Delete that folder; it is made again.",
    "E1306": "`mezzotint cache` was asked to fill the caches of a recipe that uses none. Add data.cache.latents=true "
    "to keep latents, data.cache.text=true to keep text embeddings, to the recipe or to the command.",
    "E1307": "What `mezzotint cache` would make depends on `run.seed`, by crops, flips, kept draws or "
    "`data.max_samples`, and `run.seed` is -1: each new run draws its own. Give the number, or let "
    "`mezzotint train` fill the cache.",
    "E1310": "A file of text embeddings that Open-Sora-Plan made (.npz) cannot be used: it is not there, damaged, "
    "holds pickled objects or other arrays than text_emb and mask, or embeddings of another length or width than the "
    "model takes. `mezzotint cache` makes those that are not there, by model.text_encoder, of model.max_tokens tokens.",
    "E1370": "A file of a cache that MindONE made cannot be used: it is not there, damaged, pickled, of another "
    "shape, or its vector does not end in six sizes. Its latents, texts and vectors lie in latent_cache, "
    "crossattn_cache and vector_cache, under one name. Make the cache again, or train from the pictures.",
    "E1371": "What another trainer has encoded does not fit the recipe: latents of a size that no bucket has, or of "
    "another number of channels, or texts of another shape than the model's. The message lists the sizes that are "
    "there; take the model that the cache was made for.",
}
