use super::*;

fn split(chunks: &[&[u8]], limit_bytes: usize) -> Result<Vec<String>, LineTooLong> {
    let mut splitter = Splitter::new(limit_bytes);
    let mut lines = Vec::new();
    for chunk in chunks {
        splitter.push(chunk);
        while let Some(line) = splitter.next_line()? {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
    }
    Ok(lines)
}

#[test]
fn every_chunking_gives_the_same_lines() {
    let text: &[u8] = b"first\n\nsecond\r\nthe third\n\r\nlast";
    let expected = ["first", "second", "the third"];
    for one in 0..=text.len() {
        for two in one..=text.len() {
            let chunks = [&text[..one], &text[one..two], &text[two..]];
            assert_eq!(split(&chunks, 9).unwrap(), expected, "cut at {one} and {two}");
        }
    }
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(split(&bytes, 9).unwrap(), expected);
}

#[test]
fn a_line_over_the_limit_is_an_error_with_or_without_its_end() {
    let too_long = Err(LineTooLong { limit_bytes: 4 });
    assert_eq!(split(&[b"1234\n1234\n"], 4).unwrap(), ["1234", "1234"]);
    assert_eq!(split(&[b"12345\n"], 4), too_long);
    assert_eq!(split(&[b"123", b"45"], 4), too_long);
    assert_eq!(split(&[b"123", b"4"], 4).unwrap(), [""; 0]);
}

#[test]
fn an_unfinished_line_shows() {
    let mut splitter = Splitter::new(100);
    splitter.push(b"whole\npart");
    assert_eq!(splitter.next_line().unwrap().unwrap(), "whole");
    assert_eq!(splitter.next_line().unwrap(), None);
    assert!(splitter.is_mid_line());
    splitter.push(b"\n");
    assert_eq!(splitter.next_line().unwrap().unwrap(), "part");
    assert!(!splitter.is_mid_line());
}
