//! What a question needs beside itself: credentials, the terminal, and a list of what could not be seen.

use super::document::{self, Document};
use super::ending::{Problem, note};
use super::flags::{Asking, Colour, Connection, Format};
use super::jsonpath::Template;
use super::requests;
use anstream::{AutoStream, ColorChoice};
use runtime::kubernetes::Cluster;
use runtime::visible;
use std::io::{self, Write as _};

/// Clears a terminal.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// One run of one command.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) cluster: Cluster,
    pub(super) connection: Connection,
    namespace: Option<String>,
    pub(super) format: Format,
    template: Option<Template>,
    colour: Colour,
    incomplete: Vec<String>,
}

impl Session {
    /// Finds the credentials; nothing is sent yet. The first of `formats` is what is meant where none is asked for.
    pub(super) async fn open(asking: Asking, formats: &[Format]) -> Result<Session, Problem> {
        let Asking { namespace, connection, output } = asking;
        let (format, template) = output.form.map_or((formats[0], None), |form| (form.format, form.template));
        if !formats.contains(&format) {
            let names = formats.iter().map(|format| name(*format)).collect::<Vec<_>>().join(", ");
            return Err(Problem::sentence(format!("-o {} makes no sense here; there are {names}", name(format))));
        }
        let cluster = requests::connect(&connection).await?;
        Ok(Session { cluster, connection, namespace, format, template, colour: output.colour, incomplete: Vec::new() })
    }

    /// The namespace of what is named without one.
    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(self.cluster.client.default_namespace())
    }

    pub(super) fn namespace_is_given(&self) -> bool {
        self.namespace.is_some()
    }

    /// Whether a snapshot answers, and no cluster.
    pub(super) fn is_file(&self) -> bool {
        self.connection.from_file.is_some()
    }

    /// Says something that is no part of the answer.
    pub(super) fn note(&self, text: &str) {
        note(text);
    }

    /// Says what could not be seen, here and in the document.
    pub(super) fn missed(&mut self, what: String) {
        if !self.incomplete.contains(&what) {
            self.note(&what);
            self.incomplete.push(what);
        }
    }

    pub(super) fn is_incomplete(&self) -> bool {
        !self.incomplete.is_empty()
    }

    /// Clears the terminal.
    pub(super) fn clear(&self) -> Result<(), Problem> {
        let mut out = io::stdout().lock();
        out.write_all(CLEAR.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Writes the answer. It may hold colours, which are taken out where nobody wants them.
    pub(super) fn print(&self, text: &str) -> Result<(), Problem> {
        let stdout = io::stdout();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let choice = match self.colour {
            _ if no_color => ColorChoice::Never,
            Colour::Always => ColorChoice::Always,
            Colour::Never => ColorChoice::Never,
            Colour::Auto => AutoStream::choice(&stdout),
        };
        let mut out = AutoStream::new(stdout.lock(), choice);
        out.write_all(visible::styled(text).as_bytes())?;
        Ok(out.flush()?)
    }

    /// Writes the answer as JSON or YAML, or what a template makes of it.
    pub(super) fn print_document(&self, document: Document) -> Result<(), Problem> {
        let value = document.with_incomplete(&self.incomplete);
        if let Some(template) = &self.template {
            return self.print(&template.fill(&value));
        }
        self.print(&if self.format == Format::Yaml { document::yaml(&value)? } else { document::json(&value)? })
    }
}

fn name(format: Format) -> String {
    use clap::ValueEnum as _;
    format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
