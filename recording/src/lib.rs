//! Recordings: the inputs of a leader in files, and the same leader once more from these files.
//!
//! The engine is deterministic, so its inputs with their times are all that a replay needs. A recording is the files of
//! one process in one directory:
//!
//! ```text
//! ogr-<recording>-<number>.trace      the number counts from 00000
//!
//! file    = magic block*
//! magic   = "OGTRACE" and one byte, the version of the format
//! block   = length (u32, little endian)      of the compressed bytes
//!           raw length (u32, little endian)  of the bytes before compression
//!           checksum (u32, little endian)    CRC-32 of the compressed bytes
//!           zstd frame
//! content = entry*                           MessagePack, fields by name
//! entry   = {"Header": …} | {"Round": …} | {"End": …}
//! ```
//!
//! * Each file begins with a header, which repeats what a replay needs, numbers the file, and has the bytes of all
//!   earlier files.
//! * A round has the time of the leader's clock, the calls in their order, and the number of effects that were taken.
//! * An end says why the recording ended. Without it, the process was killed or the file was cut.
//!
//! Fields by name let a version read what an older one has written, if the fields that it has added have a default.
//! A reader refuses another version of the format. It trusts nothing in a file: lengths have bounds, and at the first
//! damage it stops and says where.

use engine::leader::{Config, Input};
use engine::time::Time;
pub use names::Pseudonyms;
pub use read::{Damage, End, Error, Reader};
pub use replay::{Replay, Step};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
pub use write::{Limits, Writer};

pub mod fuzzing;
mod lists;
mod names;
mod read;
mod replay;
#[cfg(test)]
mod tests;
mod write;

/// The first bytes of a file. The last one is the version of the format.
const MAGIC: &[u8; 8] = b"OGTRACE\x01";
/// Maximum length of a block, before and after compression.
const BLOCK_MAX: usize = 64 << 20;
/// Maximum number of calls in a round. The service takes fewer.
const CALLS_MAX: usize = 100_000;
/// Length of the head of a block.
const HEAD: usize = 12;

/// The facts about the process that records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the service.
    pub version: String,
    /// Distinguishes the recordings of a directory.
    pub recording: String,
    /// The number of the file.
    pub segment: u32,
    /// The bytes of all earlier files, so that a reader notices if one of them was cut. Zero in a file of an older
    /// version.
    #[serde(default)]
    pub before: u64,
    /// The time at the origin of the leader's clock, in nanoseconds since 1970.
    pub origin: u64,
    /// The seed and the configuration of the leader.
    pub seed: u64,
    pub config: Config,
    pub names: Names,
}

/// Whether names of objects, guards and executors are in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Names {
    Plain,
    /// Pseudonyms stand for them. Equal names have equal pseudonyms. Messages are left out.
    Hashed,
}

/// The calls of one round of the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub at: Time,
    #[serde(deserialize_with = "read::calls")]
    pub calls: Vec<Call>,
    /// The number of effects that were taken after the calls, if there were more.
    #[serde(default)]
    pub unfinished: Option<u32>,
}

/// A call of the leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "nearly all calls are inputs")]
pub enum Call {
    Input(Input),
    /// A deadline has come.
    Tick,
}

/// Why a recording has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The process stopped.
    Stopped,
    /// The recording has its maximum size.
    Full,
    /// The files were written too slowly, so inputs were lost.
    Behind,
}

/// One entry of a file.
#[derive(Debug, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Entry {
    Header(Header),
    Round(Round),
    End(Ended),
}

/// As [`Entry`], borrowed.
#[derive(Serialize)]
#[serde(rename = "Entry")]
enum Written<'a> {
    Header(&'a Header),
    Round(&'a Round),
    End(&'a Ended),
}

/// The file of a recording with this number.
pub fn segment(directory: &Path, recording: &str, number: u32) -> PathBuf {
    directory.join(format!("ogr-{recording}-{number:05}.trace"))
}

/// The recording and the number of a file; `None` if it is no file of a recording.
pub fn name_of(file: &Path) -> Option<(String, u32)> {
    let name = file.file_name()?.to_str()?;
    let (recording, number) = name.strip_prefix("ogr-")?.strip_suffix(".trace")?.rsplit_once('-')?;
    Some((recording.to_owned(), number.parse().ok()?))
}
