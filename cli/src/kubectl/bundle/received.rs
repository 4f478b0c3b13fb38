//! The parts that only the graph service can give: metrics, configuration and recording.

use super::archive::{Archive, RECORDING, SEGMENT_MAX_BYTES, is_segment};
use super::readme::{About, CONFIGURATION, METRICS};
use crate::kubectl::document;
use crate::kubectl::ending::Problem;
use crate::kubectl::flags::RECORDING_MAX_BYTES;
use crate::kubectl::progress::bar;
use crate::name::command;
use crate::remote::{ANSWER_WITHIN, Admin, said};
use bytesize::ByteSize;
use executor_service::Channel;
use indicatif::ProgressBar;
use proto::admin::v1beta1::export_bundle_response::{File, Header, Part, Recording};
use proto::admin::v1beta1::{ExportBundleRequest, ExportBundleResponse};
use std::io::Write;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

/// The name of the configuration on the wire.
const WIRE_CONFIGURATION: &str = "configuration.json";
/// Maximum number of files in a bundle.
const FILES_MAX: usize = 1000;
/// The growth of a recording after which the recording is exported again.
const MARGIN_BYTES: u64 = 64 << 20;

/// Adds what the replica sends. An error of the replica is no error of the bundle.
pub(super) async fn add<W: Write>(
    replica: Channel,
    max_recording: u64,
    archive: &mut Archive<W>,
    about: &mut About,
) -> Result<(), Problem> {
    let bar = bar("{wide_bar} {bytes} of {total_bytes}");
    let mut received = Received { max_recording, header: None, file: None, recorded: 0, bar };
    let request = ExportBundleRequest { max_recording_bytes: max_recording };
    let failed = match in_time(Admin::new(replica).export_bundle(request)).await {
        Ok(answer) => received.read(answer.into_inner(), archive).await?,
        Err(status) => Some(in_words(&status)),
    };
    received.bar.finish_and_clear();
    received.say_what_is_missing(failed, archive, about);
    about.recording = received.header.and_then(|header| header.recording);
    Ok(())
}

/// Why the parts are not read to their end.
enum Stop {
    /// The replica sends what it must not send.
    Unexpected(String),
    Unwritten(Problem),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Stop {
        Stop::Unwritten(problem)
    }
}

struct Received {
    max_recording: u64,
    header: Option<Header>,
    /// The file that is being received, with its data so far.
    file: Option<(File, Vec<u8>)>,
    /// Bytes of the recording in whole files.
    recorded: u64,
    bar: ProgressBar,
}

impl Received {
    /// Reads to the end. Returns why the stream ended early, if it did.
    async fn read<W: Write>(
        &mut self,
        mut parts: Streaming<ExportBundleResponse>,
        archive: &mut Archive<W>,
    ) -> Result<Option<String>, Problem> {
        loop {
            let part = match in_time(parts.message()).await {
                Ok(Some(ExportBundleResponse { part: Some(part) })) => part,
                // A part that this version does not know.
                Ok(Some(ExportBundleResponse { part: None })) => continue,
                Ok(None) => return Ok(self.file.is_some().then(|| "the stream ended within a file".to_owned())),
                Err(status) => return Ok(Some(in_words(&status))),
            };
            match self.take(part, archive) {
                Ok(()) => {}
                Err(Stop::Unexpected(why)) => return Ok(Some(why)),
                Err(Stop::Unwritten(problem)) => return Err(problem),
            }
        }
    }

    /// Takes a part. Adds a file when it is whole, so that the archive has no file that was cut.
    fn take<W: Write>(&mut self, part: Part, archive: &mut Archive<W>) -> Result<(), Stop> {
        match part {
            Part::Header(header) => {
                self.bar.set_length(header.recording.as_ref().map_or(0, |recording| recording.size_bytes));
                self.header = Some(header);
            }
            Part::File(file) => {
                let is_known = [METRICS, WIRE_CONFIGURATION].contains(&file.name.as_str());
                let is_recorded = file.name.strip_prefix(RECORDING).is_some_and(is_segment);
                let fits = file.size_bytes <= SEGMENT_MAX_BYTES
                    && (is_known || self.recorded + file.size_bytes <= self.max_recording)
                    && archive.files().len() < FILES_MAX;
                let name = if file.name == WIRE_CONFIGURATION { CONFIGURATION } else { &file.name };
                if archive.files().iter().any(|there| there == name) {
                    return Err(Stop::Unexpected(format!("the service sent the file {:?} twice", file.name)));
                }
                if self.file.is_some() || !(is_known || is_recorded) || !fits {
                    return Err(Stop::Unexpected(format!("the service sent the file {:?} out of turn", file.name)));
                }
                self.file = Some((file, Vec::new()));
            }
            Part::Data(bytes) => {
                let Some((file, data)) = &mut self.file else {
                    return Err(Stop::Unexpected("the service sent data without a file".to_owned()));
                };
                if data.len() as u64 + bytes.len() as u64 > file.size_bytes {
                    return Err(Stop::Unexpected(format!("the service sent more of {:?} than it said", file.name)));
                }
                if file.name.starts_with(RECORDING) {
                    self.bar.inc(bytes.len() as u64);
                }
                data.extend(bytes);
            }
        }
        self.finish_file(archive)
    }

    fn finish_file<W: Write>(&mut self, archive: &mut Archive<W>) -> Result<(), Stop> {
        let is_whole = |(file, data): &mut (File, Vec<u8>)| data.len() as u64 == file.size_bytes;
        let Some((file, data)) = self.file.take_if(is_whole) else { return Ok(()) };
        if file.name == WIRE_CONFIGURATION {
            let Ok(value) = serde_json::from_slice(&data) else {
                return Err(Stop::Unexpected("the configuration is not JSON".to_owned()));
            };
            archive.add(CONFIGURATION, document::yaml(&value)?.as_bytes())?;
        } else {
            archive.add(&file.name, &data)?;
            if file.name.starts_with(RECORDING) {
                self.recorded += file.size_bytes;
            }
        }
        Ok(())
    }

    fn say_what_is_missing<W: Write>(&self, failed: Option<String>, archive: &Archive<W>, about: &mut About) {
        let why = failed.unwrap_or_else(|| "the service did not send it".to_owned());
        for name in [METRICS, CONFIGURATION] {
            if !archive.files().iter().any(|file| file == name) {
                about.lacks(name, why.clone());
            }
        }
        let Some(header) = &self.header else { return about.lacks(RECORDING, why) };
        let Some(recording) = &header.recording else {
            let why = "the service records nothing; start it with --record DIR before the next report".to_owned();
            return about.lacks(RECORDING, why);
        };
        let replica = header.meta.as_ref().map_or("", |meta| meta.replica.as_str());
        if !recording.ended.is_empty() {
            let (what, why) = ended(recording, replica);
            about.lacks(&what, why);
        }
        if !recording.problem.is_empty() {
            let advice = "check the volume of --record";
            about.lacks(RECORDING, format!("the service cannot read its recording: {}; {advice}", recording.problem));
        } else if !recording.included {
            about.lacks(RECORDING, too_large(recording, replica, self.max_recording));
        } else if self.recorded < recording.size_bytes {
            about.lacks(&format!("the end of {RECORDING}"), why);
        }
    }
}

/// Returns the missing part of a recording that has ended, and the reason. The report may be about just that.
fn ended(Recording { ended, last_time, .. }: &Recording, replica: &str) -> (String, String) {
    let text = last_time.unwrap_or_default().to_string();
    let last = format!("{}Z", text.get(..19).unwrap_or(&text));
    let why = format!("the recording ended at {last}: {ended}; restart replica {replica} to begin a new one");
    (format!("{RECORDING} after {last}"), why)
}

pub(super) fn too_large(Recording { name, directory, size_bytes, .. }: &Recording, replica: &str, max: u64) -> String {
    let (size, max) = (ByteSize(*size_bytes).display().iec(), ByteSize(max).display().iec());
    // The recording goes on growing.
    let enough = size_bytes.saturating_add(MARGIN_BYTES);
    let how = match enough <= RECORDING_MAX_BYTES {
        true => format!("to copy it from there: {} export --bundle --max-recording {}MiB", command(), enough >> 20),
        false => {
            format!("a bundle has at most 4 GiB: copy the files ogr-{name}-*.trace from the volume of that directory")
        }
    };
    format!(
        "the recording {name} in {directory} of replica {replica} has {size}, more than --max-recording {max}, and a replay needs the whole of it; {how}"
    )
}

/// Makes a call with a time limit.
async fn in_time<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let silent = || Status::unavailable(format!("the graph service sent nothing for {} s", ANSWER_WITHIN.as_secs()));
    timeout(ANSWER_WITHIN, call).await.unwrap_or_else(|_| Err(silent()))
}

pub(super) fn in_words(status: &Status) -> String {
    if status.code() == Code::Unimplemented {
        return "the graph service is of a version that does not export it; upgrade it".to_owned();
    }
    said(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubectl::bundle::readme::About;
    use crate::kubectl::bundle::readme::Missing;
    use k8s_openapi::jiff::Timestamp;
    use proto::admin::v1beta1::GetStatusResponse;
    use proto::r#type::v1beta1::ResponseMeta;

    const SEGMENT: &str = "recording/ogr-20261126T090521939Z-00000.trace";

    /// Takes whole files of one byte, and returns their names and why the last one was refused.
    fn taken(names: &[&str]) -> (Vec<String>, Option<String>) {
        let mut received =
            Received { max_recording: 100, header: None, file: None, recorded: 0, bar: ProgressBar::hidden() };
        let mut archive = Archive::new(Vec::new(), 0);
        for name in names {
            let file = File { name: (*name).to_owned(), size_bytes: 1 };
            for part in [Part::File(file), Part::Data(b"1".to_vec())] {
                match received.take(part, &mut archive) {
                    Ok(()) => {}
                    Err(Stop::Unexpected(why)) => return (archive.files().to_vec(), Some(why)),
                    Err(Stop::Unwritten(problem)) => panic!("{problem}"),
                }
            }
        }
        received.say_what_is_missing(
            None,
            &archive,
            &mut About::new(Timestamp::UNIX_EPOCH, GetStatusResponse::default()),
        );
        (archive.files().to_vec(), None)
    }

    #[test]
    fn each_file_of_a_bundle_comes_once() {
        let all = [METRICS, WIRE_CONFIGURATION, SEGMENT];
        assert_eq!(taken(&all), ([METRICS, CONFIGURATION, SEGMENT].map(str::to_owned).to_vec(), None));
        for name in all {
            let (files, refused) = taken(&[&all[..], &[name]].concat());
            assert_eq!(files.len(), all.len(), "{name} stands twice in {files:?}");
            assert_eq!(refused, Some(format!("the service sent the file {name:?} twice")));
        }
    }

    #[test]
    fn a_recording_that_has_ended_lacks_what_came_later() {
        let recording = Recording {
            included: true,
            ended: "the disk of --record is slower than the inputs".to_owned(),
            last_time: Some(prost_types::Timestamp { seconds: 59, nanos: 7 }),
            ..Default::default()
        };
        let meta = Some(ResponseMeta { replica: "graph-0".to_owned(), ..Default::default() });
        let header = Some(Header { meta, recording: Some(recording), ..Default::default() });
        let received = Received { max_recording: 100, header, file: None, recorded: 0, bar: ProgressBar::hidden() };
        let mut archive = Archive::new(Vec::new(), 0);
        assert!([METRICS, CONFIGURATION].iter().all(|name| archive.add(name, b"1").is_ok()));
        let mut about = About::new(Timestamp::UNIX_EPOCH, GetStatusResponse::default());
        received.say_what_is_missing(None, &archive, &mut about);
        let why = "the recording ended at 1970-01-01T00:00:59Z: the disk of --record is slower than the inputs; \
                   restart replica graph-0 to begin a new one";
        let what = "recording/ after 1970-01-01T00:00:59Z".to_owned();
        assert_eq!(about.missing, [Missing { what, why: why.to_owned() }]);
    }
}
