//! `export --bundle`: one file for a bug report. What cannot be had is left out, and `README.txt` says why.
//!
//! * `archive`: the file, as it is written and read
//! * `received`: what only the graph service can give
//! * `readme`: `README.txt`

use super::decisions::record::Record;
use super::document::{self, Schema};
use super::ending::{self, Answered, Ending, Problem};
use super::flags::Export;
use super::{status, way};
use crate::remote::{self, MESSAGE_MAX_BYTES, PAGE_SIZE, PAGES_MAX, endless};
use archive::Archive;
use bytesize::ByteSize;
use executor_service::Channel;
use k8s_openapi::jiff::Timestamp;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::{DecisionEvent, ListDecisionsRequest};
use readme::{About, Missing};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub(super) mod archive;
mod readme;
mod received;
#[cfg(test)]
mod tests;

/// Maximum number of decisions.
const DECISIONS_MAX: usize = 10_000;
/// The name of standard output.
const STDOUT: &str = "-";
/// The suffix of a bundle's name until the bundle is whole.
const PART: &str = ".part";

pub(super) async fn run(flags: Export, file: Option<PathBuf>) -> Answered {
    let way = way(flags.asking.connection).await?;
    let now = Timestamp::now();
    let target = Target::create(file.unwrap_or_else(|| default_name(now)))?;
    let mut archive = Archive::new(target.output()?, now.as_second().unsigned_abs());
    let (replica, told, document) = status::report(&way).await?;
    let mut about = About::new(now, told);
    match document.and_then(|document| document::yaml(&document.with_incomplete(&[]))) {
        Ok(text) => archive.add(readme::STATUS, text.as_bytes())?,
        Err(why) => about.lacks(readme::STATUS, why.to_string()),
    }
    decisions(replica.clone(), &mut archive, &mut about).await?;
    received::add(replica, flags.max_recording.as_u64(), &mut archive, &mut about).await?;
    archive.add(readme::README, about.text(archive.files()).as_bytes())?;
    let bytes = archive.finish()?;
    ending::note(&last_line(&target.keep()?, bytes, &about.missing));
    Ok(Ending::Fine)
}

fn default_name(now: Timestamp) -> PathBuf {
    PathBuf::from(format!("ownergraph-bundle-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")))
}

fn last_line(name: &str, bytes: u64, missing: &[Missing]) -> String {
    let size = ByteSize(bytes).display().iec();
    if missing.is_empty() {
        return format!("{name}: {size}, nothing is missing");
    }
    let what: Vec<&str> = missing.iter().map(|missing| missing.what.as_str()).collect();
    format!("{name}: {size}, without {}; {} in it says why", what.join(", "), readme::README)
}

/// The file of the bundle. It has another name until it is whole, and is removed if it does not become so.
struct Target {
    path: PathBuf,
    /// The file that is written, and its name. `None`: standard output.
    part: Option<(PathBuf, File)>,
}

impl Target {
    /// Creates the file before the first question, so that an existing one is refused at once.
    fn create(path: PathBuf) -> Result<Target, Problem> {
        if path == Path::new(STDOUT) {
            return Ok(Target { path, part: None });
        }
        let exists = |path: &Path| {
            let path = path.display();
            Problem::sentence(format!("{path} exists and is not overwritten: name another file, or remove it"))
        };
        if fs::symlink_metadata(&path).is_ok() {
            return Err(exists(&path));
        }
        let mut name = path.clone().into_os_string();
        name.push(PART);
        let name = PathBuf::from(name);
        match File::create_new(&name) {
            Ok(file) => Ok(Target { path, part: Some((name, file)) }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(&name)),
            Err(error) => {
                Err(Problem::sentence(format!("{} cannot be created: {error}; name another file", name.display())))
            }
        }
    }

    fn output(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match &self.part {
            Some((_, file)) => Box::new(file.try_clone()?),
            None => Box::new(io::stdout()),
        })
    }

    /// Gives the file its name, and returns that.
    fn keep(mut self) -> Result<String, Problem> {
        let Some((name, _)) = self.part.take() else { return Ok("standard output".to_owned()) };
        let (path, is) = (self.path.display(), name.display());
        if fs::symlink_metadata(&self.path).is_ok() {
            return Err(Problem::sentence(format!(
                "{path} was created meanwhile and is not overwritten; the bundle is {is}"
            )));
        }
        fs::rename(&name, &self.path).map_err(|error| {
            Problem::sentence(format!("the bundle is {is}, which cannot be renamed to {path}: {error}"))
        })?;
        Ok(path.to_string())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((name, _)) = &self.part {
            // A part of a bundle is useless; a failure to remove it is harmless.
            let _left = fs::remove_file(name);
        }
    }
}

/// Adds the last decisions, the oldest first.
async fn decisions<W: Write>(replica: Channel, archive: &mut Archive<W>, about: &mut About) -> Result<(), Problem> {
    let (events, failed) = last_decisions(replica).await;
    if let Some(why) = failed {
        let what = if events.is_empty() { readme::DECISIONS.to_owned() } else { "older decisions".to_owned() };
        about.lacks(&what, why.to_string());
        if events.is_empty() {
            return Ok(());
        }
    }
    let schema = Schema::load()?;
    let mut lines = String::new();
    for event in events.into_iter().rev() {
        lines.push_str(&document::line(&Record::of(event).item(&schema)?));
    }
    archive.add(readme::DECISIONS, lines.as_bytes())
}

/// The last decisions, the newest first, and why there are no further ones, if a call failed.
async fn last_decisions(replica: Channel) -> (Vec<DecisionEvent>, Option<Problem>) {
    let mut client = DecisionServiceClient::new(replica).max_decoding_message_size(MESSAGE_MAX_BYTES);
    let mut request = ListDecisionsRequest { page_size: PAGE_SIZE, ..Default::default() };
    let mut found = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = match remote::within(client.list_decisions(request.clone())).await {
            Ok(page) => page,
            Err(failure) => return (found, Some(failure.into())),
        };
        found.extend(page.events);
        if page.next_page_token.is_empty() || found.len() >= DECISIONS_MAX {
            found.truncate(DECISIONS_MAX);
            return (found, None);
        }
        request.page_token = page.next_page_token;
    }
    (found, Some(endless().into()))
}
