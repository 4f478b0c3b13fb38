//! Embeds the built page of the console (`console/dist`). Without it the program builds too, and serves no page.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../console");
    let dist = console.join("dist");
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo runs this script at each build for a path that does not exist.
    if let Some(watched) = [&dist, &console].into_iter().find(|path| path.is_dir()) {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let mut files = Vec::new();
    if dist.is_dir() {
        list(&dist, &mut files)?;
    }
    // The same tree gives the same program.
    files.sort();
    let mut source = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&dist).map_err(io::Error::other)?;
        let name = name.to_string_lossy().replace('\\', "/");
        let place = file.canonicalize()?.display().to_string();
        writeln!(source, "({name:?}, include_bytes!({place:?}).as_slice()),").map_err(io::Error::other)?;
    }
    source.push_str("]\n");
    let made = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?).join("console.rs");
    // A newer file with the same content would compile the program again.
    if fs::read(&made).is_ok_and(|there| there == source.as_bytes()) { Ok(()) } else { fs::write(made, source) }
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}
