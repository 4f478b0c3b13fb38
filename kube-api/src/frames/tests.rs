use super::*;

fn split(chunks: &[&'static [u8]], limit_bytes: usize) -> Result<Vec<Vec<u8>>, FrameTooLong> {
    let mut splitter = Splitter::new(limit_bytes);
    let mut frames = Vec::new();
    for chunk in chunks {
        splitter.push(Bytes::from_static(chunk));
        while let Some(frame) = splitter.next_frame()? {
            frames.push(frame.to_vec());
        }
    }
    Ok(frames)
}

#[test]
fn every_chunking_gives_the_same_frames() {
    let text: &'static [u8] = b"\0\0\0\x05first\0\0\0\0\0\0\0\x03two\0\0\0\x09unfinis";
    let expected = [&b"first"[..], b"", b"two"];
    for one in 0..=text.len() {
        for two in one..=text.len() {
            let chunks = [&text[..one], &text[one..two], &text[two..]];
            assert_eq!(split(&chunks, 9).unwrap(), expected, "cut at {one} and {two}");
        }
    }
    let bytes: Vec<&'static [u8]> = text.chunks(1).collect();
    assert_eq!(split(&bytes, 9).unwrap(), expected);
}

#[test]
fn a_frame_over_the_limit_is_an_error_before_any_of_it_has_come() {
    assert_eq!(split(&[b"\0\0\0\x04abcd"], 4).unwrap(), [b"abcd"]);
    let too_long = |announced_bytes| Err(FrameTooLong { announced_bytes, limit_bytes: 4 });
    assert_eq!(split(&[b"\0\0\0\x05"], 4), too_long(5));
    assert_eq!(split(&[b"{\"ty"], 4), too_long(0x7b22_7479));
    assert_eq!(split(&[b"\xff\xff\xff\xff"], 4), too_long(u32::MAX.into()));
    let words = "the stream announces a frame of 5 bytes; at most 4 are allowed";
    assert_eq!(split(&[b"\0\0\0\x05"], 4).unwrap_err().to_string(), words);
}

#[test]
fn an_unfinished_frame_shows() {
    let mut splitter = Splitter::new(100);
    splitter.push(Bytes::from_static(b"\0\0\0\x01a\0"));
    assert_eq!(splitter.next_frame().unwrap().unwrap(), "a");
    assert_eq!(splitter.next_frame().unwrap(), None);
    assert!(splitter.is_mid_frame());
    splitter.push(Bytes::from_static(b"\0\0\x01b"));
    assert_eq!(splitter.next_frame().unwrap().unwrap(), "b");
    assert_eq!(splitter.next_frame().unwrap(), None);
    assert!(!splitter.is_mid_frame());
}
