//! A line at the bottom of the terminal that is rewritten while something goes on. Log lines pass above it.

use crate::visible;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The one that is shown now.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Is on stderr while this value lives, cut to the width of the terminal; where stderr is no terminal, nothing is.
#[derive(Debug)]
pub struct StatusLine(ProgressBar);

impl StatusLine {
    /// Takes the place of any other.
    pub fn begin() -> StatusLine {
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // Its only error is a template that cannot be read.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            line.set_style(style);
        }
        *shown() = Some(line.clone());
        StatusLine(line)
    }

    /// What it says from now on.
    pub fn say(&self, text: impl Into<String>) {
        self.0.set_message(visible::line(&text.into()).into_owned());
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
        *shown() = None;
    }
}

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// stderr, above the line.
#[derive(Debug)]
pub(crate) struct Above;

impl Write for Above {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match shown().as_ref() {
            Some(line) => line.suspend(|| io::stderr().write(text)),
            None => io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
