//! A status line at the bottom of the terminal. Log lines appear above it.

use crate::visible;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The current status line.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A line that stderr shows while this value lives, cut to the width of the terminal. It is not shown if stderr is not
/// a terminal.
#[derive(Debug)]
pub struct StatusLine(ProgressBar);

impl StatusLine {
    /// Replaces any other status line.
    pub fn begin() -> StatusLine {
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // The only possible error is an invalid template.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            line.set_style(style);
        }
        *shown() = Some(line.clone());
        StatusLine(line)
    }

    /// Sets the text.
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
