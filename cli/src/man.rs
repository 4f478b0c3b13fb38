//! `ownergraph man`: the manual pages of all programs, for packages.

use crate::args;
use crate::failure::Failure;
use anyhow::Context as _;
use clap::builder::Resettable;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io;
use std::path::Path;

/// Writes a page for each program and each command into the directory.
pub(crate) fn run(directory: &Path) -> Result<(), Failure> {
    let programs = [args::command(), graph_service::options::Options::command(), executor_service::Options::command()];
    let write = || {
        fs::create_dir_all(directory)?;
        programs.into_iter().try_for_each(|program| pages(program, directory))
    };
    write().with_context(|| format!("writing manual pages into {}", directory.display())).map_err(Failure::Other)
}

fn pages(program: Command, directory: &Path) -> io::Result<()> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut left = vec![program];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|below| !below.is_hide_set()).cloned());
        let (name, page) = page(command)?;
        fs::write(directory.join(name), page)?;
    }
    Ok(())
}

/// The name and the text of a page. The text has no date, so that the same program writes the same bytes.
fn page(command: Command) -> io::Result<(String, Vec<u8>)> {
    let behind = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let source = format!("ownergraph {}", runtime::version::VERSION);
    let man = Man::new(command.after_help(Resettable::Reset)).source(source);
    let mut page = Vec::new();
    man.render(&mut page)?;
    // Man would fill the lines of examples and exit codes like those of a paragraph.
    for (title, lines) in behind.split("\n\n").filter_map(|section| section.split_once(":\n")) {
        let mut section = Roff::default();
        section.control("SH", [title.to_uppercase().as_str()]).control("nf", []);
        for line in lines.lines() {
            section.text([roman(line)]);
        }
        section.control("fi", []).to_writer(&mut page)?;
    }
    Ok((man.get_filename(), page))
}
