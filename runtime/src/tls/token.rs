//! A bearer token that another owner renews before it expires: in a file, or in memory.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

use super::files::{BadTls, File};

/// Interval of reads. Kubernetes renews a token when a fifth of its life is left, which is at least two minutes.
const READ_EVERY: Duration = Duration::from_secs(10);

/// The source of the header with the token.
#[derive(Debug)]
pub(super) enum Token {
    File(TokenFile),
    Held(Arc<Mutex<Option<HeaderValue>>>),
}

/// A token in a file.
#[derive(Debug)]
pub struct TokenFile {
    file: File,
    read: Mutex<Read>,
}

#[derive(Debug)]
struct Read {
    header: HeaderValue,
    at: Instant,
    complaint: Option<BadTls>,
}

impl Token {
    pub(super) async fn open(flag: &'static str, path: &Path) -> Result<Token, BadTls> {
        TokenFile::open(flag, path).await.map(Token::File)
    }

    /// The current header. `None` if the owner of a token in memory has taken it away.
    pub(super) async fn header(&self) -> Option<HeaderValue> {
        match self {
            Token::File(file) => Some(file.header().await),
            Token::Held(header) => header.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl TokenFile {
    /// Reads the file. `flag` is its flag, for errors.
    ///
    /// # Errors
    /// The file is not readable, or does not have exactly one token.
    pub async fn open(flag: &'static str, path: &Path) -> Result<TokenFile, BadTls> {
        let file = File::new(flag, path);
        let header = header(&file, &file.read().await?)?;
        let read = Mutex::new(Read { header, at: Instant::now(), complaint: None });
        Ok(TokenFile { file, read })
    }

    /// `Bearer …` with the content of the file, at most a few seconds old. If the file is not readable, the earlier
    /// token is returned.
    pub async fn header(&self) -> HeaderValue {
        if let Some(header) = self.lately() {
            return header;
        }
        let found = self.file.read().await.and_then(|text| header(&self.file, &text));
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.at = Instant::now();
        match found {
            Ok(header) => {
                read.header = header;
                read.complaint = None;
            }
            Err(why) if read.complaint.as_ref() == Some(&why) => {}
            Err(why) => {
                tracing::warn!(%why, "cannot read the token file; the earlier token remains in use; fix the file");
                read.complaint = Some(why);
            }
        }
        read.header.clone()
    }

    fn lately(&self) -> Option<HeaderValue> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        (read.at.elapsed() < READ_EVERY).then(|| read.header.clone())
    }
}

fn header(file: &File, text: &[u8]) -> Result<HeaderValue, BadTls> {
    let token = text.trim_ascii();
    if token.is_empty() {
        return Err(file.bad("the file is empty"));
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(file.bad("the file does not contain exactly one token"));
    }
    let mut header =
        HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(|_| file.bad("the content is not a token"))?;
    header.set_sensitive(true);
    Ok(header)
}
