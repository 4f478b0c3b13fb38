//! Reads a recording, up to its end or up to a damage.

use super::{BLOCK_MAX, CALLS_MAX, Call, Ended, Entry, HEAD, Header, MAGIC, Round, lists, name_of, segment};
use engine::leader::Config;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum of each duration of a configuration.
const SPAN_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum time of a round: a hundred years after the start. At the end of the clock, each timer would be due at once.
const AT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Why a recording cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {why}", path.display())]
    Io { path: PathBuf, why: io::Error },
    #[error("{} has no recording; name a directory with files ogr-*.trace, or one of the files", .0.display())]
    Nothing(PathBuf),
    #[error("{} has the recordings {}; name the first file of one of them", path.display(), recordings.join(", "))]
    Many { path: PathBuf, recordings: Vec<String> },
    #[error("{} is not the first file of its recording; name the directory, or the file that ends in -00000.trace", .0.display())]
    NotFirst(PathBuf),
    #[error("{} is not a recording", .0.display())]
    Foreign(PathBuf),
    #[error("{} has version {version} of the format, and this program reads version {}", path.display(), MAGIC[7])]
    Version { path: PathBuf, version: u8 },
    #[error("the header is damaged: {0}")]
    Header(Damage),
}

/// Where a recording cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: PathBuf,
    /// The begin of the block in the file.
    pub at: u64,
    pub why: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.file.display(), self.at, self.why)
    }
}

/// How the entries of a recording end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Ended(Ended),
    /// There is no end in the files: the process was killed, or it still writes, or the last files are missing.
    Open,
    Damaged(Damage),
}

/// The entries of a recording, in order.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    header: Header,
    segment: u32,
    /// The bytes of the files before the present one.
    before: u64,
    file: Blocks,
    /// Entries of the present block.
    block: Vec<u8>,
    position: usize,
    end: Option<End>,
}

impl Reader {
    /// Opens the recording in a directory, or the one whose first file this is.
    ///
    /// # Errors
    /// There is no recording, there are several, or the header is not readable.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        let failed = |why| Error::Io { path: path.to_owned(), why };
        let first = if fs::metadata(path).map_err(failed)?.is_dir() { only(path)? } else { path.to_owned() };
        if name_of(&first).is_some_and(|(_, number)| number > 0) {
            return Err(Error::NotFirst(first));
        }
        Reader::of(Blocks::open(&first)?, &first)
    }

    /// Reads a recording of one file from memory.
    ///
    /// # Errors
    /// The bytes are no recording, or the header is not readable.
    pub fn of_bytes(bytes: Vec<u8>) -> Result<Reader, Error> {
        let nowhere = Path::new("");
        Reader::of(Blocks::of(nowhere, Source::Memory(Cursor::new(bytes)))?, nowhere)
    }

    fn of(mut file: Blocks, first: &Path) -> Result<Reader, Error> {
        let mut block = Vec::new();
        let damage = |file: &Blocks, why: &str| Error::Header(file.damage(why));
        match file.next(&mut block) {
            Ok(true) => {}
            Ok(false) => return Err(damage(&file, "the file ends")),
            Err(damage) => return Err(Error::Header(damage)),
        }
        let mut position = 0;
        let Some(Ok(Entry::Header(header))) = entry(&block, &mut position) else {
            return Err(damage(&file, "the first entry is not a header"));
        };
        let Config { session_ttl, heartbeat_interval, execution_limit, stale_after, .. } = &header.config;
        if [session_ttl, heartbeat_interval, execution_limit, stale_after].into_iter().any(|span| *span > SPAN_MAX) {
            return Err(damage(&file, "the configuration has a duration of more than a day, which no service has"));
        }
        let directory = first.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Reader { directory, header, segment: 0, before: 0, file, block, position, end: None })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the recording ends; `None` before its last round was read.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The next round; `None` at the end or at a damage.
    pub fn round(&mut self) -> Option<Round> {
        while self.end.is_none() {
            match entry(&self.block, &mut self.position) {
                Some(Ok(Entry::Round(round))) if round.at.since_origin() > AT_MAX => {
                    self.stop("a round has a time that no clock shows");
                }
                Some(Ok(Entry::Round(round))) => return Some(round),
                Some(Ok(Entry::Header(header))) => {
                    let (before, known) = (header.before, self.before);
                    let expected = Header { segment: self.segment, before, ..self.header.clone() };
                    if header != expected {
                        self.stop("the header is that of another file");
                    } else if before != known && before != 0 {
                        // Each earlier file was compared when the one after it began.
                        self.stop(&format!(
                            "the file before it was cut or changed: all earlier files have {known} of {before} bytes"
                        ));
                    }
                }
                Some(Ok(Entry::End(why))) => self.end = Some(End::Ended(why)),
                Some(Err(why)) => self.stop(&why),
                None => self.advance(),
            }
        }
        None
    }

    /// Reads the next block.
    fn advance(&mut self) {
        self.position = 0;
        match self.file.next(&mut self.block) {
            Ok(true) => {}
            Err(damage) => self.end = Some(End::Damaged(damage)),
            Ok(false) => {
                self.block.clear();
                let next = segment(&self.directory, &self.header.recording, self.segment + 1);
                if !next.exists() {
                    let is_missing = has_later(&self.directory, &self.header.recording, self.segment + 1);
                    let why = "the file is missing, and later files of the recording are there".to_owned();
                    self.end =
                        Some(if is_missing { End::Damaged(Damage { file: next, at: 0, why }) } else { End::Open });
                    return;
                }
                self.segment += 1;
                self.before += self.file.position;
                match Blocks::open(&next) {
                    Ok(file) => self.file = file,
                    Err(error) => {
                        self.end = Some(End::Damaged(Damage { file: next, at: 0, why: error.to_string() }));
                    }
                }
            }
        }
    }

    fn stop(&mut self, why: &str) {
        self.end = Some(End::Damaged(self.file.damage(why)));
    }
}

/// The next entry of a block; `None` at its end.
fn entry(block: &[u8], position: &mut usize) -> Option<Result<Entry, String>> {
    let mut rest = block.get(*position..).filter(|rest| !rest.is_empty())?;
    if lists::are_too_many(rest) {
        return Some(Err(lists::too_many()));
    }
    let mut decoder = rmp_serde::Deserializer::new(&mut rest);
    let entry = Entry::deserialize(&mut decoder).map_err(|error| format!("an entry is not readable: {error}"));
    *position = block.len() - rest.len();
    Some(entry)
}

/// The first file of the only recording of a directory.
fn only(directory: &Path) -> Result<PathBuf, Error> {
    let failed = |why| Error::Io { path: directory.to_owned(), why };
    let mut recordings = BTreeSet::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        recordings.extend(name_of(&path).map(|(recording, _)| recording));
    }
    let mut recordings = recordings.into_iter();
    match (recordings.next(), recordings.next()) {
        (None, _) => Err(Error::Nothing(directory.to_owned())),
        (Some(one), None) => Ok(segment(directory, &one, 0)),
        (Some(one), Some(other)) => {
            let recordings = [one, other].into_iter().chain(recordings).collect();
            Err(Error::Many { path: directory.to_owned(), recordings })
        }
    }
}

/// Whether a directory has a file of the recording after this one.
fn has_later(directory: &Path, recording: &str, number: u32) -> bool {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names = files.filter_map(|file| name_of(&file.path()));
    names.any(|(of, later)| of == recording && later > number)
}

#[derive(Debug)]
enum Source {
    File(File),
    Memory(Cursor<Vec<u8>>),
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::File(file) => file.read(buffer),
            Source::Memory(bytes) => bytes.read(buffer),
        }
    }
}

/// The blocks of one file.
#[derive(Debug)]
struct Blocks {
    path: PathBuf,
    file: Source,
    /// The begin of the last block, and the end of it.
    begin: u64,
    position: u64,
    packed: Vec<u8>,
}

impl Blocks {
    fn open(path: &Path) -> Result<Blocks, Error> {
        let failed = |why| Error::Io { path: path.to_owned(), why };
        Blocks::of(path, Source::File(File::open(path).map_err(failed)?))
    }

    fn of(path: &Path, mut file: Source) -> Result<Blocks, Error> {
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic).map_err(|_| Error::Foreign(path.to_owned()))?;
        let (word, version) = (&magic[..7], magic[7]);
        if word != &MAGIC[..7] {
            return Err(Error::Foreign(path.to_owned()));
        }
        if version != MAGIC[7] {
            return Err(Error::Version { path: path.to_owned(), version });
        }
        let position = MAGIC.len() as u64;
        Ok(Blocks { path: path.to_owned(), file, begin: position, position, packed: Vec::new() })
    }

    /// Reads the next block. False at the end of the file.
    fn next(&mut self, block: &mut Vec<u8>) -> Result<bool, Damage> {
        self.begin = self.position;
        match self.fill(HEAD)? {
            0 => return Ok(false),
            HEAD => {}
            _ => return Err(self.damage("the file ends in the head of a block")),
        }
        let head = &self.packed;
        let [length, raw, checksum] =
            [0, 4, 8].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        let (length, raw) = (length as usize, raw as usize);
        if length > BLOCK_MAX || raw > BLOCK_MAX {
            return Err(self.damage("the block claims to be larger than a block may be"));
        }
        if self.fill(length)? < length {
            return Err(self.damage("the file ends in a block"));
        }
        self.position += (HEAD + length) as u64;
        if crc32fast::hash(&self.packed) != checksum {
            return Err(self.damage("the checksum of the block is wrong"));
        }
        *block = zstd::bulk::decompress(&self.packed, raw)
            .map_err(|error| self.damage(&format!("the block cannot be decompressed: {error}")))?;
        if block.len() == raw { Ok(true) } else { Err(self.damage("the block has another length than it claims")) }
    }

    /// Replaces `packed` by the next bytes, as far as the file goes. Returns their number.
    fn fill(&mut self, length: usize) -> Result<usize, Damage> {
        self.packed.clear();
        // The length may be a lie: the buffer grows with what the file has.
        let read = (&mut self.file).take(length as u64).read_to_end(&mut self.packed);
        read.map_err(|error| self.damage(&error.to_string()))
    }

    fn damage(&self, why: &str) -> Damage {
        Damage { file: self.path.clone(), at: self.begin, why: why.to_owned() }
    }
}

/// Reads the calls of a round. Each is larger in memory than the elements that [`lists`] bounds.
pub(super) fn calls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Call>, D::Error> {
    struct Bounded;

    impl<'de> Visitor<'de> for Bounded {
        type Value = Vec<Call>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {CALLS_MAX} calls")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<Call>, A::Error> {
            let mut calls = Vec::new();
            while let Some(call) = all.next_element()? {
                if calls.len() == CALLS_MAX {
                    return Err(A::Error::custom(format!("a round has more than {CALLS_MAX} calls")));
                }
                calls.push(call);
            }
            Ok(calls)
        }
    }

    deserializer.deserialize_seq(Bounded)
}
