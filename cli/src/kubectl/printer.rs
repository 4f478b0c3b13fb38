//! Output on stdout: the format, the template and the colours of an answer.

use super::document::{self, Document};
use super::ending::Problem;
use super::flags::{Colour, Format, Output};
use super::jsonpath::Template;
use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum as _;
use runtime::visible;
use std::io::{self, Write as _};

/// The output flags.
#[derive(Clone, Debug)]
pub(crate) struct Printer {
    pub(crate) format: Format,
    template: Option<Template>,
    colour: Colour,
    /// Whether tables have their headings.
    pub(crate) headings: bool,
}

impl Printer {
    /// Reads the flags. The first of `formats` is the default.
    pub(crate) fn of(output: Output, formats: &[Format]) -> Result<Printer, Problem> {
        let (format, template) = output.form.map_or((formats[0], None), |form| (form.format, form.template));
        let is_text =
            matches!(formats[0], Format::Table | Format::Tree) && matches!(format, Format::Table | Format::Wide);
        let format = if is_text && !formats.contains(&format) { formats[0] } else { format };
        if !formats.contains(&format) {
            let names = formats.iter().map(|format| name(*format)).collect::<Vec<_>>().join(", ");
            return Err(Problem::sentence(format!(
                "-o {} is not supported by this command; use {names}",
                name(format)
            )));
        }
        Ok(Printer { format, template, colour: output.colour, headings: !output.no_headers })
    }

    /// Prints the answer. Colours in it are removed if they are not wanted.
    pub(crate) fn print(&self, text: &str) -> Result<(), Problem> {
        let stdout = io::stdout();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let choice = match self.colour {
            Colour::Always => ColorChoice::Always,
            Colour::Never => ColorChoice::Never,
            Colour::Auto if no_color => ColorChoice::Never,
            Colour::Auto => AutoStream::choice(&stdout),
        };
        let mut out = AutoStream::new(stdout.lock(), choice);
        out.write_all(visible::styled(text).as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints a table: a heading, and rows.
    pub(crate) fn print_table(&self, text: &str) -> Result<(), Problem> {
        let rows = text.split_once('\n').map_or("", |(_, rows)| rows);
        self.print(if self.headings { text } else { rows })
    }

    /// Prints the answer as JSON or YAML, or filled into a template. `incomplete` is the list of missing information.
    pub(crate) fn print_document(&self, document: Document, incomplete: &[String]) -> Result<(), Problem> {
        let value = document.with_incomplete(incomplete);
        if let Some(template) = &self.template {
            return self.print(&template.fill(&value));
        }
        self.print(&if self.format == Format::Yaml { document::yaml(&value)? } else { document::json(&value)? })
    }
}

fn name(format: Format) -> String {
    format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
