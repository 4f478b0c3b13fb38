use super::*;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use tempfile::TempDir;

struct Log {
    directory: TempDir,
    follower: Follower,
}

impl Log {
    /// A follower of a file with this content, or of none.
    fn new(content: Option<&str>) -> Log {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        Log { directory, follower: Follower::new(path) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// The lines that steps find until they wait for more.
    fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let step = self.follower.step();
            let text = |line: Line| line.map_or("(too long)".to_owned(), |line| String::from_utf8(line).unwrap());
            lines.extend(step.lines.into_iter().map(text));
            if !step.more {
                return lines;
            }
        }
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn only_new_lines_are_read() {
    let mut log = Log::new(Some("old\nold\n"));
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", "a\nb\n\nbeg");
    assert_eq!(log.lines(), ["a", "b", ""]);
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", "un\nc\n");
    assert_eq!(log.lines(), ["begun", "c"]);
}

#[test]
fn a_line_that_was_begun_before_the_start_is_no_line() {
    let mut log = Log::new(Some("old\nhal"));
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", "f\nwhole\n");
    assert_eq!(log.lines(), ["whole"]);
}

#[test]
fn a_file_that_appears_is_read_from_its_beginning() {
    let mut log = Log::new(None);
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", "a\n");
    assert_eq!(log.lines(), ["a"]);
}

#[test]
fn a_rotation_loses_nothing() {
    let mut log = Log::new(Some("old\n"));
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", "a\n");
    log.rename("audit.log", "audit-1.log");
    log.append("audit-1.log", "b\nwithout end");
    assert_eq!(log.lines(), ["a", "b"], "the new file is not there yet");
    log.append("audit.log", "c\n");
    assert_eq!(log.lines(), ["without end", "c"]);
    log.append("audit.log", "d\n");
    log.rename("audit.log", "audit-2.log");
    log.append("audit.log", "e\n");
    assert_eq!(log.lines(), ["d", "e"]);
}

#[test]
fn a_truncated_file_is_read_from_its_beginning() {
    let mut log = Log::new(Some("old\nold\n"));
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", "beg");
    assert_eq!(log.lines(), NOTHING);
    fs::copy(log.path("audit.log"), log.path("audit-1.log")).unwrap();
    File::options().write(true).open(log.path("audit.log")).unwrap().set_len(0).unwrap();
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", "a\n");
    assert_eq!(log.lines(), ["a"]);
}

#[test]
fn a_file_that_vanishes_is_found_again() {
    let mut log = Log::new(Some("old\n"));
    assert_eq!(log.lines(), NOTHING);
    log.rename("audit.log", "elsewhere");
    assert_eq!(log.lines(), NOTHING);
    assert_eq!(log.follower.trouble, Some(ErrorKind::NotFound));
    log.append("elsewhere", "a\n");
    log.rename("elsewhere", "audit.log");
    assert_eq!(log.lines(), ["a"], "the same file");
    assert_eq!(log.follower.trouble, None);
    fs::remove_file(log.path("audit.log")).unwrap();
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", "b\n");
    assert_eq!(log.lines(), ["b"], "another file");
}

#[test]
fn what_is_not_a_file_is_not_opened() {
    let mut log = Log::new(None);
    fs::create_dir(log.path("audit.log")).unwrap();
    assert_eq!(log.lines(), NOTHING);
    assert_eq!(log.follower.trouble, Some(ErrorKind::InvalidInput));
    fs::remove_dir(log.path("audit.log")).unwrap();
    log.append("audit.log", "a\n");
    assert_eq!(log.lines(), ["a"]);
}

#[test]
fn a_line_that_is_too_long_is_dropped_once() {
    let mut log = Log::new(Some(""));
    assert_eq!(log.lines(), NOTHING);
    let longest = "x".repeat(LINE_MAX);
    log.append("audit.log", &format!("{longest}\n{longest}x"));
    assert_eq!(log.lines(), [&*longest, "(too long)"], "the end of the line is not awaited");
    log.append("audit.log", &format!("{longest}\na\n"));
    assert_eq!(log.lines(), ["a"]);
}

#[test]
fn a_step_is_bounded() {
    let mut log = Log::new(None);
    assert_eq!(log.lines(), NOTHING);
    log.append("audit.log", &"line\n".repeat(STEP_MAX));
    assert!(log.follower.step().more, "opened");
    let step = log.follower.step();
    assert!(step.more && step.lines.len() == STEP_MAX / 5, "{} lines", step.lines.len());
    assert_eq!(log.lines().len(), STEP_MAX - STEP_MAX / 5);
}
