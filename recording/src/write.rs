//! Writes a recording.

use super::{BLOCK_MAX, Ended, HEAD, Header, MAGIC, Round, Written, lists, name_of, segment};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The bytes of entries in one block. More entries compress better; a damage loses at most one block.
const BLOCK_BYTES: usize = 1 << 20;
/// The level of compression: fast enough for the first lists of a large cluster.
const LEVEL: i32 = 1;

/// How large a recording may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All recordings of the directory together. One ends at half of it, so that the one before it can stay: that one
    /// may show why its process ended.
    pub directory: u64,
    /// One file.
    pub segment: u64,
}

/// The end of a recording, in a file.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    header: Header,
    /// Maximum of the bytes of one file, and of all files of this recording.
    segment_max: u64,
    max: u64,
    /// Earlier recordings that were deleted, with their bytes.
    deleted: Vec<(String, u64)>,
    file: File,
    /// Bytes of the present file, and of the files before.
    written: u64,
    before: u64,
    /// Entries that are in no block yet.
    raw: Vec<u8>,
    packed: Vec<u8>,
}

impl Writer {
    /// Begins a recording in a directory, which is created if it is absent. Deletes the oldest recordings of the
    /// directory if they leave less than half of the space. The newest one stays if it leaves a quarter.
    ///
    /// # Errors
    /// The directory cannot be read or written, or the recording exists.
    pub fn create(directory: &Path, header: Header, limits: Limits) -> io::Result<Writer> {
        fs::create_dir_all(directory)?;
        let (kept, deleted) = make_room(directory, limits.directory)?;
        let header = Header { segment: 0, before: 0, ..header };
        let file = create(directory, &header)?;
        let mut writer = Writer {
            directory: directory.to_owned(),
            header,
            segment_max: limits.segment,
            max: limits.directory.saturating_sub(kept).min(limits.directory / 2),
            deleted,
            file,
            written: MAGIC.len() as u64,
            before: 0,
            raw: Vec::new(),
            packed: Vec::new(),
        };
        writer.begin()?;
        Ok(writer)
    }

    /// Appends a round. Returns true if the recording is full. Then no further round may follow.
    ///
    /// # Errors
    /// A file cannot be written, or the round is larger than a reader accepts.
    pub fn round(&mut self, round: &Round) -> io::Result<bool> {
        let begin = self.raw.len();
        self.append(&Written::Round(round))?;
        if lists::are_too_many(&self.raw[begin..]) {
            return Err(io::Error::other(lists::too_many()));
        }
        if self.raw.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        if self.written >= self.segment_max {
            // A flush from outside may have filled the file. The next one begins with its header.
            self.flush()?;
            self.before += self.written;
            self.header.segment += 1;
            self.header.before = self.before;
            self.file = create(&self.directory, &self.header)?;
            self.written = MAGIC.len() as u64;
            self.begin()?;
        }
        Ok(self.bytes() >= self.max)
    }

    /// Writes a block of the entries so far.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.raw.is_empty() {
            return Ok(());
        }
        pack(&self.raw, &mut self.packed)?;
        self.file.write_all(&self.packed)?;
        self.written += self.packed.len() as u64;
        self.raw.clear();
        Ok(())
    }

    /// Ends the recording. Returns the bytes of all its files.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(mut self, why: &Ended) -> io::Result<u64> {
        self.append(&Written::End(why))?;
        self.flush()?;
        self.file.sync_all()?;
        Ok(self.bytes())
    }

    /// The bytes of all files so far, which end with a whole block.
    pub fn bytes(&self) -> u64 {
        self.before + self.written
    }

    /// The earlier recordings that were deleted for this one, with their bytes.
    pub fn deleted(&self) -> &[(String, u64)] {
        &self.deleted
    }

    /// The header is a block of its own, so that a damage of the first rounds leaves it.
    fn begin(&mut self) -> io::Result<()> {
        let header = self.header.clone();
        self.append(&Written::Header(&header))?;
        self.flush()
    }

    fn append(&mut self, entry: &Written<'_>) -> io::Result<()> {
        rmp_serde::encode::write_named(&mut self.raw, entry).map_err(io::Error::other)
    }
}

/// Makes a block of these entries.
pub(super) fn pack(raw: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
    if raw.len() > BLOCK_MAX {
        return Err(io::Error::other(format!(
            "a round with {} bytes of inputs is larger than a block may be ({BLOCK_MAX} bytes)",
            raw.len()
        )));
    }
    packed.clear();
    packed.resize(HEAD + zstd::zstd_safe::compress_bound(raw.len()), 0);
    let length = zstd::bulk::compress_to_buffer(raw, &mut packed[HEAD..], LEVEL)?;
    packed.truncate(HEAD + length);
    let number = |length: usize| u32::try_from(length).map_err(io::Error::other).map(u32::to_le_bytes);
    let checksum = crc32fast::hash(&packed[HEAD..]).to_le_bytes();
    let head = [number(length)?, number(raw.len())?, checksum].concat();
    packed[..HEAD].copy_from_slice(&head);
    Ok(())
}

fn create(directory: &Path, header: &Header) -> io::Result<File> {
    let path = segment(directory, &header.recording, header.segment);
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(MAGIC)?;
    Ok(file)
}

/// Deletes the oldest recordings until the rest have at most half of `max` bytes. The newest one may have three
/// quarters, because a full one has a block more than a half. Returns the bytes of the rest, and the deleted recordings
/// with their bytes.
fn make_room(directory: &Path, max: u64) -> io::Result<(u64, Vec<(String, u64)>)> {
    let mut recordings: BTreeMap<String, (u64, Vec<PathBuf>)> = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some((recording, _)) = name_of(&entry.path()) {
            let (bytes, files) = recordings.entry(recording).or_default();
            *bytes += entry.metadata()?.len();
            files.push(entry.path());
        }
    }
    let mut total: u64 = recordings.values().map(|(bytes, _)| bytes).sum();
    let mut deleted = Vec::new();
    while total > if recordings.len() > 1 { max / 2 } else { max - max / 4 } {
        // Their names begin with their time.
        let Some((recording, (bytes, files))) = recordings.pop_first() else { break };
        files.iter().try_for_each(fs::remove_file)?;
        total -= bytes;
        deleted.push((recording, bytes));
    }
    Ok((total, deleted))
}
