//! Follows a file that another process appends to, as `tail -F` does. One step is one look at the file, without
//! waiting, so that tests need no time.
//!
//! The follower polls: notifications of the kernel miss changes on network file systems, and leave all of what follows
//! to do.
//!
//! | What happens to the file | What follows |
//! |---|---|
//! | It exists at the first step | Reads what is appended from then on |
//! | It appears after the first step | Reads it from its beginning |
//! | It is renamed, and another one has its name (rotation) | Reads the old one to its end, then the new one |
//! | It shrinks (truncation) | Reads it from its beginning. What was lost between two steps is unknown |
//! | It is gone, or not readable | Says so once, and tries again at each step |

use same_file::Handle;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Maximum length of a line. The rest of a longer one is dropped.
pub(super) const LINE_MAX: usize = 1 << 20;
/// Maximum number of bytes of one step.
const STEP_MAX: usize = 256 << 10;

/// One line, without its line feed. `None` for a line that is too long.
pub(super) type Line = Option<Vec<u8>>;

#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) lines: Vec<Line>,
    /// The next step may find more at once.
    pub(super) more: bool,
}

#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    open: Option<Open>,
    is_first: bool,
    /// The last problem, so that each is logged once.
    trouble: Option<ErrorKind>,
}

#[derive(Debug)]
struct Open {
    file: Handle,
    position: u64,
    lines: Lines,
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
    /// The rest of this line is dropped.
    drops: bool,
}

impl Follower {
    pub(super) fn new(path: PathBuf) -> Follower {
        Follower { path, open: None, is_first: true, trouble: None }
    }

    pub(super) fn step(&mut self) -> Step {
        let mut step = Step::default();
        // The look comes before the read: a file that has been renamed is complete then.
        let found = look(&self.path);
        let is_first = std::mem::replace(&mut self.is_first, false);
        let Some(open) = &mut self.open else {
            match found.and_then(|file| Open::new(file, is_first)) {
                Ok(open) => {
                    self.follow(open);
                    step.more = true;
                }
                Err(error) => self.cannot(&error),
            }
            return step;
        };
        let read = open.read(&self.path, &mut step);
        if step.more {
            return step;
        }
        match found {
            Ok(file) if file != open.file => {
                step.lines.extend(open.lines.end());
                // The next step reads the new file.
                step.more = true;
                match Open::new(file, false) {
                    Ok(open) => self.follow(open),
                    Err(error) => self.cannot(&error),
                }
            }
            found => match read.and(found.map(drop)) {
                Ok(()) if self.trouble.take().is_some() => {
                    tracing::info!(file = %self.path.display(), "found the audit log again");
                }
                Ok(()) => {}
                Err(error) => self.cannot(&error),
            },
        }
        step
    }

    fn follow(&mut self, open: Open) {
        tracing::info!(file = %self.path.display(), from_byte = open.position, "follows the audit log");
        self.open = Some(open);
        self.trouble = None;
    }

    fn cannot(&mut self, error: &io::Error) {
        if self.trouble.replace(error.kind()) != Some(error.kind()) {
            let file = self.path.display();
            tracing::warn!(%file, %error, "cannot read the audit log, so requests have no actors; check the file of --audit-log and the rights of this user");
        }
    }
}

/// Opens the file that has this name now.
fn look(path: &Path) -> io::Result<Handle> {
    // To open a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "this is not a regular file"));
    }
    Handle::from_path(path)
}

impl Open {
    fn new(file: Handle, at_end: bool) -> io::Result<Open> {
        let mut open = Open { file, position: 0, lines: Lines::default() };
        let length = open.file.as_file().metadata()?.len();
        if at_end && length > 0 {
            let mut last = [0];
            open.file.as_file_mut().seek(SeekFrom::Start(length - 1))?;
            open.file.as_file_mut().read_exact(&mut last)?;
            open.position = length;
            open.lines.drops = last != *b"\n";
        }
        Ok(open)
    }

    /// Reads up to the end of the file, or [`STEP_MAX`] bytes.
    fn read(&mut self, path: &Path, step: &mut Step) -> io::Result<()> {
        let file = self.file.as_file_mut();
        if file.metadata()?.len() < self.position {
            tracing::info!(file = %path.display(), "the audit log was truncated; follows it from its beginning");
            file.seek(SeekFrom::Start(0))?;
            self.position = 0;
            self.lines = Lines::default();
        }
        let mut bytes = Vec::new();
        let read = file.take(STEP_MAX as u64).read_to_end(&mut bytes);
        self.position += bytes.len() as u64;
        step.more = bytes.len() == STEP_MAX;
        self.lines.split(&bytes, &mut step.lines);
        read.map(|_| ())
    }
}

impl Lines {
    pub(super) fn split(&mut self, bytes: &[u8], lines: &mut Vec<Line>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            if !self.drops {
                self.begun.extend(text.unwrap_or(piece));
                if self.begun.len() > LINE_MAX {
                    self.begun = Vec::new();
                    self.drops = true;
                    lines.push(None);
                }
            }
            if text.is_some() && !std::mem::take(&mut self.drops) {
                lines.push(Some(std::mem::take(&mut self.begun)));
            }
        }
    }

    /// The last line of a file, without a line feed.
    fn end(&mut self) -> Option<Line> {
        let line = std::mem::take(&mut self.begun);
        (!line.is_empty()).then_some(Some(line))
    }
}

#[cfg(test)]
mod tests;
