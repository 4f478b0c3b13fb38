//! The page in this program.

use super::answers::{Answer, bytes};
use http::StatusCode;

/// Paths below `console/dist`, with their contents. Empty if the page was not built.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console.rs"));
const PAGE: &str = "index.html";
const HTML: &str = "text/html; charset=utf-8";
const MISSING: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ownergraph</title>\
<h1>This program has no console in it</h1>\
<p>Build the page, and then the program again:</p>\
<pre>cd console\nnpm ci &amp;&amp; npm run build\ncd ..\ncargo build --release</pre></html>\n";

pub(super) fn answer(path: &str) -> Answer {
    answer_of(FILES, path)
}

/// The file of a path. The page itself answers for its own paths, which have no dot.
pub(super) fn answer_of(files: &'static [(&str, &[u8])], path: &str) -> Answer {
    let path = path.trim_start_matches('/');
    let found = |wanted: &str| files.iter().find(|(name, _)| *name == wanted);
    match found(path).or_else(|| if path.contains('.') { None } else { found(PAGE) }) {
        Some((name, content)) => bytes(StatusCode::OK, content_type(name), *content),
        None if files.is_empty() => bytes(StatusCode::NOT_FOUND, HTML, MISSING),
        None => bytes(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "the console has no such file\n"),
    }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => HTML,
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "json" | "map" | "webmanifest" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
