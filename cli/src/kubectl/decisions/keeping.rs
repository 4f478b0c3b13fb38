//! The files of a reader of the log: its position, and dead letters.

use super::position;
use crate::kubectl::ending::{Problem, note};
use anyhow::Context as _;
use proto::decision::v1beta1::Position;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

/// Interval of stored positions.
pub(super) const STORE_EVERY: Duration = Duration::from_secs(1);
/// Maximum size of a file of dead letters.
const LETTERS_MAX_BYTES: u64 = 64 << 20;
/// Maximum size of a file with a position, far above any.
const POSITION_MAX_BYTES: u64 = 4096;
/// Stands for standard output.
const STDOUT: &str = "-";

/// The file of `--position`, if one is given.
#[derive(Debug)]
pub(super) struct Bookmark {
    path: Option<PathBuf>,
    stored: Option<Position>,
}

impl Bookmark {
    /// Reads the file. A file that does not exist is written with the first position.
    pub(super) async fn open(path: Option<&Path>) -> Result<Bookmark, Problem> {
        let Some(path) = path else { return Ok(Bookmark { path: None, stored: None }) };
        let shown = path.display();
        let text = match fs::metadata(path).await {
            Ok(file) if file.len() > POSITION_MAX_BYTES => Err(io::Error::other("it is too large for a position")),
            Ok(_) => fs::read_to_string(path).await,
            Err(error) => Err(error),
        };
        let stored = match text {
            Ok(text) => Some(position("--position", text.trim()).map_err(|why| {
                Problem::sentence(format!("{shown}: {why}; remove the file to begin again with the oldest kept event"))
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Problem::sentence(format!("--position {shown} cannot be read: {error}"))),
        };
        Ok(Bookmark { path: Some(path.to_owned()), stored })
    }

    pub(super) fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    pub(super) fn stored(&self) -> Option<&Position> {
        self.stored.as_ref()
    }

    /// Stores a position, if it is a new one. At any moment the file has this position or the one before.
    pub(super) async fn store(&mut self, at: Option<&Position>) -> Result<(), String> {
        let (Some(path), Some(at)) = (&self.path, at.filter(|at| self.stored.as_ref() != Some(at))) else {
            return Ok(());
        };
        write(path, &format!("{}:{}\n", at.log_id, at.sequence))
            .await
            .map_err(|error| format!("--position {} cannot be written: {error}", path.display()))?;
        self.stored = Some(at.clone());
        Ok(())
    }
}

async fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside).await?;
    file.write_all(text.as_bytes()).await?;
    file.sync_all().await?;
    fs::rename(&beside, path).await
}

/// Where dead letters go.
#[derive(Debug)]
pub(super) struct Letters {
    to: To,
    /// The bound of a file.
    max_bytes: u64,
}

#[derive(Debug)]
enum To {
    Stderr,
    Stdout,
    File { path: PathBuf, file: File, bytes: u64, is_full: bool },
}

impl Letters {
    /// Opens the file of `--dead-letters` to append to it.
    pub(super) async fn open(path: Option<&Path>) -> Result<Letters, Problem> {
        let to = match path {
            None => To::Stderr,
            Some(path) if path.as_os_str() == STDOUT => To::Stdout,
            Some(path) => {
                let named = || format!("--dead-letters {} cannot be written", path.display());
                let file = OpenOptions::new().append(true).create(true).open(path).await.with_context(named)?;
                let bytes = file.metadata().await.with_context(named)?.len();
                To::File { path: path.to_owned(), file, bytes, is_full: false }
            }
        };
        Ok(Letters { to, max_bytes: LETTERS_MAX_BYTES })
    }

    /// Writes a dead letter: one line of JSON. The error says that the file does not take it, and the letter then
    /// stands on stderr.
    pub(super) async fn put(&mut self, line: &str) -> Result<(), String> {
        let max_bytes = self.max_bytes;
        let failed = match &mut self.to {
            To::Stderr => None,
            To::Stdout => match say(line) {
                Ok(()) => return Ok(()),
                Err(error) => Some(format!("--dead-letters: standard output cannot be written: {error}")),
            },
            To::File { path, bytes, is_full, .. } if *bytes + line.len() as u64 > max_bytes => {
                if !std::mem::replace(is_full, true) {
                    let path = path.display();
                    note(&format!(
                        "--dead-letters {path} has reached {max_bytes} bytes: further dead letters are written here; move the file away and restart"
                    ));
                }
                None
            }
            To::File { path, file, bytes, .. } => {
                *bytes += line.len() as u64;
                let written = async {
                    file.write_all(line.as_bytes()).await?;
                    file.flush().await
                };
                match written.await {
                    Ok(()) => return Ok(()),
                    Err(error) => Some(format!("--dead-letters {} cannot be written: {error}", path.display())),
                }
            }
        };
        note(&format!("dead letter: {}", line.trim_end()));
        failed.map_or(Ok(()), Err)
    }

    /// Waits until all dead letters are on disk.
    pub(super) async fn sync(&mut self) -> Result<(), String> {
        match &mut self.to {
            To::Stderr | To::Stdout => Ok(()),
            To::File { path, file, .. } => {
                let synced = file.sync_data().await;
                synced.map_err(|error| format!("--dead-letters {} cannot be written: {error}", path.display()))
            }
        }
    }
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_position_is_stored_under_its_name_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("position");
        let at = |sequence| Position { log_id: "urn:log".into(), sequence };
        let mut bookmark = Bookmark::open(Some(&path)).await.unwrap();
        assert_eq!((bookmark.is_kept(), bookmark.stored()), (true, None));
        bookmark.store(None).await.unwrap();
        assert!(!path.exists());
        for sequence in [7, 7, 8] {
            bookmark.store(Some(&at(sequence))).await.unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "urn:log:8\n");
        assert_eq!(Bookmark::open(Some(&path)).await.unwrap().stored(), Some(&at(8)));
        // A write that breaks off leaves the file beside it.
        std::fs::write(directory.path().join("position.new"), "urn:lo").unwrap();
        assert_eq!(Bookmark::open(Some(&path)).await.unwrap().stored(), Some(&at(8)));
        for wrong in ["", "urn", &"x".repeat(5000)] {
            std::fs::write(&path, wrong).unwrap();
            let why = Bookmark::open(Some(&path)).await.unwrap_err().to_string();
            assert!(why.contains("position"), "{why}");
        }
        let mut nowhere = Bookmark { path: Some(directory.path().join("no/position")), stored: None };
        assert!(nowhere.store(Some(&at(1))).await.unwrap_err().contains("cannot be written"));
        assert_eq!(nowhere.stored(), None);
    }

    #[tokio::test]
    async fn dead_letters_are_appended_up_to_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("letters");
        std::fs::write(&path, "{\"old\":1}\n").unwrap();
        let mut letters = Letters { max_bytes: 25, ..Letters::open(Some(&path)).await.unwrap() };
        for line in ["{\"new\":2}\n", "{\"new\":3}\n"] {
            letters.put(line).await.unwrap();
        }
        letters.sync().await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"old\":1}\n{\"new\":2}\n");
        assert!(matches!(letters.to, To::File { is_full: true, .. }));
        let nowhere = Letters::open(Some(&directory.path().join("no/letters"))).await.unwrap_err().to_string();
        assert!(nowhere.contains("--dead-letters") && nowhere.contains("cannot be written"), "{nowhere}");
    }
}
