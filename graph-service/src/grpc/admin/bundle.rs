//! Streams what only this process can add to a bug report: its metrics, its configuration and its recording.

use crate::grpc::followers::{Reader, Stop};
use crate::grpc::{Shared, apart, status};
use crate::recorder::{Recorded, unread};
use proto::admin::v1beta1::export_bundle_response::{File, Header, Part, Recording};
use proto::admin::v1beta1::{ExportBundleRequest, ExportBundleResponse};
use recording::Names;
use runtime::admin::Probe as _;
use runtime::version::{COMMIT, VERSION};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

/// Maximum number of bytes in one message.
const CHUNK_BYTES: usize = 256 * 1024;

/// The export of one bundle.
pub(super) struct Export {
    shared: Arc<Shared>,
    max_recording: u64,
    /// Held to the end, because one replica exports one bundle at a time.
    _turn: OwnedSemaphorePermit,
}

impl Export {
    pub(super) fn of(shared: Arc<Shared>, request: ExportBundleRequest, turn: OwnedSemaphorePermit) -> Export {
        Export { shared, max_recording: request.max_recording_bytes, _turn: turn }
    }

    /// Sends all parts.
    pub(super) async fn run(self, reader: Reader<ExportBundleResponse>) -> Result<(), Status> {
        reader.export(&self.shared.shutdown, self.send_all(&reader)).await
    }

    async fn send_all(&self, reader: &Reader<ExportBundleResponse>) -> Result<(), Stop> {
        let (recording, files) = match &self.shared.recorded {
            Some(of) => self.recording(of).await?,
            None => (None, Vec::new()),
        };
        let header = Header {
            meta: Some(self.shared.meta()),
            version: VERSION.to_owned(),
            commit: COMMIT.to_owned(),
            recording,
        };
        send(reader, Part::Header(header)).await?;
        send_text(reader, "metrics.txt", &self.shared.health.metrics()).await?;
        send_text(reader, "configuration.json", &self.shared.configuration).await?;
        for (path, bytes) in files {
            send_file(reader, &path, bytes).await?;
        }
        Ok(())
    }

    /// The recording, and the files of it to send.
    async fn recording(&self, of: &Recorded) -> Result<(Option<Recording>, Vec<(PathBuf, u64)>), Status> {
        let written = of.written();
        let (asked, bytes) = (of.clone(), written.bytes);
        let (mut files, problem) = match apart(move || asked.files(bytes)).await? {
            Ok(files) => (files, String::new()),
            Err(error) => (Vec::new(), error.to_string()),
        };
        let size_bytes = files.iter().map(|(_, bytes)| bytes).sum();
        let included = problem.is_empty() && size_bytes <= self.max_recording;
        if !included {
            files.clear();
        }
        let (name, directory) = (of.name.clone(), of.directory.display().to_string());
        let pseudonyms = of.names == Names::Hashed;
        let (ended, last_time) = (written.ended.unwrap_or_default(), Some(written.last.into()));
        let said = Recording { name, directory, size_bytes, pseudonyms, included, problem, ended, last_time };
        Ok((Some(said), files))
    }
}

async fn send(reader: &Reader<ExportBundleResponse>, part: Part) -> Result<(), Stop> {
    let sent = reader.send(ExportBundleResponse { part: Some(part) }).await;
    sent.map_err(|why| Stop::untaken(why, status::slow_export_reader))
}

async fn send_text(reader: &Reader<ExportBundleResponse>, name: &str, text: &str) -> Result<(), Stop> {
    send(reader, Part::File(File { name: name.to_owned(), size_bytes: text.len() as u64 })).await?;
    for chunk in text.as_bytes().chunks(CHUNK_BYTES) {
        send(reader, Part::Data(chunk.to_vec())).await?;
    }
    Ok(())
}

/// Sends the first bytes of a file. The recorder appends to it meanwhile.
async fn send_file(reader: &Reader<ExportBundleResponse>, path: &Path, bytes: u64) -> Result<(), Stop> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    send(reader, Part::File(File { name: format!("recording/{name}"), size_bytes: bytes })).await?;
    let failed = |error: io::Error| status::bundle::unread(&unread(path, &error));
    let opened = path.to_owned();
    // A slow disk must not stop the streams of other readers.
    let mut file = apart(move || fs::File::open(opened)).await?.map_err(failed)?;
    let mut left = bytes;
    while left > 0 {
        let wanted = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let read = apart(move || {
            let mut data = vec![0; wanted];
            file.read_exact(&mut data)?;
            Ok((file, data))
        });
        let (same, data) = read.await?.map_err(failed)?;
        (file, left) = (same, left - wanted as u64);
        send(reader, Part::Data(data)).await?;
    }
    Ok(())
}
