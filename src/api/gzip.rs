//! Gzip files, after RFC 1952: members, each a header, deflated data, a checksum and a length.
//!
//! `flate2` does the same, with a checksum table that took one fortieth of the worker.

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};

/// Why a file could not be unpacked.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not gzip, or damaged, or incomplete.
    Broken(&'static str),
    /// Unpacked, it has more bytes than this.
    Large(usize),
}

const CUT: Refused = Refused::Broken("truncated");

/// The contents of all members, at most `limit` bytes.
pub fn gunzip(gz: &[u8], limit: usize) -> Result<Vec<u8>, Refused> {
    let (mut text, mut rest) = (Vec::new(), gz);
    loop {
        let begin = text.len();
        rest = unpack(after_header(rest)?, &mut text, limit)?;
        let ([sum, size], after) = words(rest).ok_or(CUT)?;
        let member = text.get(begin..).unwrap_or_default();
        if sum != checksum(member) || u32::try_from(member.len()) != Ok(size) {
            return Err(Refused::Broken("checksum mismatch"));
        }
        if after.is_empty() {
            return Ok(text);
        }
        rest = after;
    }
}

/// The two little-endian words that end a member, and the rest.
fn words(input: &[u8]) -> Option<([u32; 2], &[u8])> {
    let (sum, rest) = input.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    Some(([u32::from_le_bytes(*sum), u32::from_le_bytes(*size)], rest))
}

fn after_header(gz: &[u8]) -> Result<&[u8], Refused> {
    const CHECKSUM: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    let Some(([0x1f, 0x8b, 8, flags, _, _, _, _, _, _], mut rest)) = gz.split_first_chunk() else {
        return Err(Refused::Broken("bad header"));
    };
    if flags & EXTRA != 0 {
        let (size, after) = rest.split_first_chunk().ok_or(CUT)?;
        rest = after.get(usize::from(u16::from_le_bytes(*size))..).ok_or(CUT)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|byte| *byte == 0).ok_or(CUT)?;
            rest = rest.get(end + 1..).ok_or(CUT)?;
        }
    }
    if flags & CHECKSUM != 0 { rest.get(2..).ok_or(CUT) } else { Ok(rest) }
}

/// Appends the contents of a member; returns the rest.
fn unpack<'a>(deflated: &'a [u8], text: &mut Vec<u8>, limit: usize) -> Result<&'a [u8], Refused> {
    let mut state = InflateState::new_boxed(DataFormat::Raw);
    let (mut rest, mut chunk) = (deflated, vec![0; 32 * 1024]);
    loop {
        let done = inflate(&mut state, rest, &mut chunk, MZFlush::None);
        rest = rest.get(done.bytes_consumed..).unwrap_or_default();
        text.extend_from_slice(chunk.get(..done.bytes_written).unwrap_or_default());
        if text.len() > limit {
            return Err(Refused::Large(limit));
        }
        match done.status {
            Ok(MZStatus::StreamEnd) => return Ok(rest),
            Ok(_) if done.bytes_written > 0 || done.bytes_consumed > 0 => {}
            Ok(_) | Err(MZError::Buf) => return Err(CUT),
            Err(_) => return Err(Refused::Broken("invalid deflate data")),
        }
    }
}

/// CRC-32, four bits at a time.
fn checksum(bytes: &[u8]) -> u32 {
    const HALVES: [u32; 16] = [
        0x0000_0000,
        0x1db7_1064,
        0x3b6e_20c8,
        0x26d9_30ac,
        0x76dc_4190,
        0x6b6b_51f4,
        0x4db2_6158,
        0x5005_713c,
        0xedb8_8320,
        0xf00f_9344,
        0xd6d6_a3e8,
        0xcb61_b38c,
        0x9b64_c2b0,
        0x86d3_d2d4,
        0xa00a_e278,
        0xbdbd_f21c,
    ];
    let half = |sum: u32| sum >> 4 ^ HALVES.get((sum & 15) as usize).copied().unwrap_or_default();
    !bytes.iter().fold(!0, |sum, byte| half(half(sum ^ u32::from(*byte))))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, GzBuilder};

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let header = GzBuilder::new().filename("a.tar").comment("c").extra("xx");
        let mut encoder = header.write(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_another_packs_is_unpacked() {
        let text: Vec<u8> = (0..200_000u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
        for text in [&b""[..], b"x", &text] {
            assert_eq!(gunzip(&gzip(text), 1_000_000).unwrap(), text);
        }
        assert_eq!(gunzip(&[gzip(b"one "), gzip(b""), gzip(b"two")].concat(), 7).unwrap(), b"one two");
    }

    #[test]
    fn no_file_is_larger_than_the_limit() {
        let one = gzip(&[7; 1000]);
        assert_eq!(gunzip(&one, 1000).map(|text| text.len()), Ok(1000));
        assert_eq!(gunzip(&one, 999), Err(Refused::Large(999)));
        assert_eq!(gunzip(&[one.clone(), one].concat(), 1500), Err(Refused::Large(1500)));
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let text = b"some text, some text, some text";
        let whole = gzip(text);
        for n in 0..whole.len() {
            assert!(gunzip(&whole[..n], 1000).is_err(), "cut after {n}");
            let mut other = whole.clone();
            other[n] ^= 4;
            // The header and the unused bits of the last byte do not affect the text.
            assert!(gunzip(&other, 1000).map_or(true, |same| same == text), "byte {n} changed");
            assert!(n + 8 < whole.len() || gunzip(&other, 1000).is_err(), "byte {n} changed");
        }
        assert!(gunzip(&[whole, b"more".to_vec()].concat(), 1000).is_err());
    }
}
