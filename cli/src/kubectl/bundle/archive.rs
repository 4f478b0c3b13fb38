//! The file of a bundle: a tar archive, compressed with gzip.

use crate::kubectl::ending::Problem;
use crate::kubectl::flags::RECORDING_MAX_BYTES;
use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use tar::{Builder, Header};
use tempfile::TempDir;

/// The directory of the recording in the archive.
pub(in crate::kubectl) const RECORDING: &str = "recording/";
/// Maximum size of one file of a recording: more than a segment with a block of the maximum size.
pub(super) const SEGMENT_MAX_BYTES: u64 = 256 << 20;
/// Maximum number of entries of an archive that is read, and of their bytes.
const ENTRIES_MAX: usize = 10_000;
const BYTES_MAX: u64 = RECORDING_MAX_BYTES + (1 << 30);
/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An archive that is written.
pub(super) struct Archive<W: Write> {
    to: Builder<GzEncoder<Counting<W>>>,
    /// The time of all entries, in seconds since 1970.
    time: u64,
    files: Vec<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W, time: u64) -> Archive<W> {
        let to = Builder::new(GzEncoder::new(Counting { to, bytes: 0 }, Compression::default()));
        Archive { to, time, files: Vec::new() }
    }

    pub(super) fn add(&mut self, name: &str, data: &[u8]) -> Result<(), Problem> {
        let mut header = Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(self.time);
        self.to.append_data(&mut header, name, data).context(UNWRITTEN)?;
        self.files.push(name.to_owned());
        Ok(())
    }

    /// The names of the entries so far.
    pub(super) fn files(&self) -> &[String] {
        &self.files
    }

    /// Ends the archive. Returns its size in bytes.
    pub(super) fn finish(self) -> Result<u64, Problem> {
        let mut to = self.to.into_inner().and_then(GzEncoder::finish).context(UNWRITTEN)?;
        to.flush().context(UNWRITTEN)?;
        Ok(to.bytes)
    }
}

const UNWRITTEN: &str = "the bundle cannot be written; check the space of its directory";

struct Counting<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.to.write(data)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A recording as files: those of a directory, or those of a bundle in a directory that ends with this value.
#[derive(Debug)]
pub(in crate::kubectl) struct Trace {
    pub(in crate::kubectl) path: PathBuf,
    _unpacked: Option<TempDir>,
}

impl Trace {
    /// Unpacks the recording of a bundle. Any other path stays as it is.
    pub(in crate::kubectl) fn open(path: &Path) -> Result<Trace, Problem> {
        let Some(bundle) = compressed(path) else {
            return Ok(Trace { path: path.to_owned(), _unpacked: None });
        };
        let directory = tempfile::tempdir().context("a directory for the recording of the bundle cannot be created")?;
        unpack(bundle, directory.path()).with_context(|| format!("{} is not a usable bundle", path.display()))?;
        Ok(Trace { path: directory.path().to_owned(), _unpacked: Some(directory) })
    }
}

/// The file, if it is compressed with gzip.
fn compressed(path: &Path) -> Option<impl Read> {
    let mut magic = [0; GZIP.len()];
    let mut file = File::open(path).ok()?;
    file.read_exact(&mut magic).ok()?;
    (magic == GZIP).then(|| (&GZIP[..]).chain(BufReader::new(file)))
}

/// Writes the files of the recording into a directory. The archive is foreign: names, kinds and sizes have bounds.
pub(super) fn unpack(bundle: impl Read, directory: &Path) -> anyhow::Result<()> {
    let mut archive = tar::Archive::new(GzDecoder::new(bundle));
    let (mut entries, mut bytes, mut segments) = (0, 0, 0);
    // Raw entries: extensions for long names are entries of their own, and refused.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry.context("the archive is damaged")?;
        entries += 1;
        ensure!(
            entries <= ENTRIES_MAX,
            "the archive has more than {ENTRIES_MAX} entries; copy the files of the recording instead"
        );
        let (name, size) = (String::from_utf8_lossy(&entry.path_bytes()).into_owned(), entry.size());
        bytes += size;
        ensure!(
            size <= BYTES_MAX && bytes <= BYTES_MAX,
            "the archive has more than {} GiB; copy the files of the recording instead",
            BYTES_MAX >> 30
        );
        let is_plain = !name.starts_with('/') && !name.contains('\\') && name.split('/').all(|part| part != "..");
        ensure!(is_plain, "the name {name:?} leads out of the archive");
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        ensure!(kind.is_file(), "{name:?} is a link or another entry that a bundle has not");
        let Some(segment) = name.trim_start_matches("./").strip_prefix(RECORDING) else { continue };
        ensure!(is_segment(segment), "{name:?} is not the name of a file of a recording");
        ensure!(size <= SEGMENT_MAX_BYTES, "{name:?} is larger than a file of a recording");
        let written = File::create_new(directory.join(segment)).and_then(|mut to| io::copy(&mut entry, &mut to));
        let written = written.with_context(|| format!("{name:?} cannot be unpacked"))?;
        ensure!(written == size, "the archive ends in {name:?}");
        segments += 1;
    }
    ensure!(segments > 0, "the archive has no recording; its README.txt gives the reason");
    Ok(())
}

/// Whether this is the name of a file of a recording, without a directory.
pub(super) fn is_segment(name: &str) -> bool {
    !name.contains(['/', '\\']) && recording::name_of(Path::new(name)).is_some()
}
