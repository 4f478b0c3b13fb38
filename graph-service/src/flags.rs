//! The flags of a process as text, for bug reports.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Words in the names of flags whose values may be secret.
const SECRET: [&str; 5] = ["credential", "key", "password", "secret", "token"];
/// Flags with such a word whose values are public.
const PUBLIC: [&str; 2] = ["api-server-tokens", "token-audience"];
/// Names of values that are names of files.
const FILES: [&str; 3] = ["DIR", "FILE", "PATH"];
/// The text that replaces a secret.
const REDACTED: &str = "REDACTED";

/// The flags of a process by name, each with its values. Passwords and tokens are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flags {
    command_line: BTreeMap<String, Vec<String>>,
    environment: BTreeMap<String, Vec<String>>,
    default: BTreeMap<String, Vec<String>>,
}

impl Flags {
    /// The flags of a command, and the values that were found for them.
    pub fn of(command: &Command, found: &ArgMatches) -> Flags {
        let mut flags = Flags::default();
        for flag in command.get_arguments() {
            let (Some(name), id) = (flag.get_long(), flag.get_id().as_str()) else { continue };
            // The parser adds flags of its own, such as --help, which have no values.
            let Ok(Some(values)) = found.try_get_raw(id) else { continue };
            let values = values.map(|value| shown(flag, name, &value.to_string_lossy())).collect();
            let of_source = match found.value_source(id) {
                Some(ValueSource::CommandLine) => &mut flags.command_line,
                Some(ValueSource::EnvVariable) => &mut flags.environment,
                Some(_) | None => &mut flags.default,
            };
            of_source.insert(name.to_owned(), values);
        }
        flags
    }
}

/// The value of a flag without secrets.
fn shown(flag: &Arg, name: &str, value: &str) -> String {
    let may_be_secret = SECRET.iter().any(|word| name.contains(word)) && !PUBLIC.contains(&name);
    let is_file = flag.get_value_names().is_some_and(|names| names.iter().all(|name| FILES.contains(&name.as_str())));
    if may_be_secret && !is_file {
        return REDACTED.to_owned();
    }
    match value.rsplit_once('@') {
        // A password may stand before a host without a scheme, too. Names of contexts have this form without one.
        Some((_, host)) if !value.contains("://") && !is_file && name != "context" => format!("{REDACTED}@{host}"),
        Some(_) | None => without_credentials(value),
    }
}

/// A URL without user, password and token, and without its query, which may have a token too. Other text is unchanged.
fn without_credentials(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else { return value.to_owned() };
    // A password may have any character, so the last one counts.
    let rest = rest.rsplit_once('@').map_or(rest.to_owned(), |(_, host)| format!("{REDACTED}@{host}"));
    match rest.split_once(['?', '#']) {
        Some((url, _)) => format!("{scheme}://{url}?{REDACTED}"),
        None => format!("{scheme}://{rest}"),
    }
}
