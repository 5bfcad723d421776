//! Verifies a release: a detached Ed25519 signature (RFC 8032) over the bytes of a program, by a
//! public key that root installed. `edged-run` verifies an upgrade before it runs any of it.
//!
//! It does not check the age of a release: a signature is valid as long as its key is installed. A
//! crash here trusts nothing.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ring::signature::{ED25519, UnparsedPublicKey};

use crate::limits::{RELEASE_BYTES_MAX, RELEASE_KEYS_BYTES_MAX};
use crate::model::error::{Error, Input, System};
use crate::wire::x509::pem;

/// The bytes before the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410 section
/// 4): they have one encoding only.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const SIGNATURE_BYTES: usize = 64;

/// Where root installs the keys; `edged-run` uses the same path.
pub const KEYS: &str = "/etc/edged/release.pub";

/// Verifies the program with one of the keys; all are files. `keys`: PEM, as `openssl pkey
/// -pubout` writes it; several keys one after the other while one replaces another.
pub fn verify(program: &Path, signature: &Path, keys: &Path) -> Result<(), Error> {
    let name = signature.display();
    let text = read(keys, RELEASE_KEYS_BYTES_MAX)?;
    let signed = read(signature, SIGNATURE_BYTES)?;
    if signed.len() != SIGNATURE_BYTES {
        let got = format_args!("{} bytes", signed.len());
        let expected = format!("a signature of {SIGNATURE_BYTES}");
        return Err(Input::new(got, expected).at(name).into());
    }
    let keys = public_keys(&text).map_err(|wrong| wrong.at(keys.display()))?;
    let bytes = read(program, RELEASE_BYTES_MAX)?;
    let vouches =
        |key: &[u8]| UnparsedPublicKey::new(&ED25519, key).verify(&bytes, &signed).is_ok();
    if keys.iter().any(|key| vouches(key)) {
        return Ok(());
    }
    let why = format!("{name} is not a signature of it by this key");
    Err(Input::other(why).at(program.display()).into())
}

fn public_keys(text: &[u8]) -> Result<Vec<Vec<u8>>, Input> {
    let blocks = pem::decode(&String::from_utf8_lossy(text))
        .map_err(|fault| Input::other(fault.to_string()))?;
    let keys: Option<Vec<Vec<u8>>> = blocks
        .into_iter()
        .map(|block| {
            block.der.strip_prefix(&SPKI).filter(|key| key.len() == 32).map(<[u8]>::to_vec)
        })
        .collect();
    keys.filter(|keys| !keys.is_empty())
        .ok_or_else(|| Input::other("expected public keys of the kind Ed25519, as PEM"))
}

fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(bytes_max as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|error| System::at(path.display(), error))?;
    if bytes.len() > bytes_max {
        let got = format_args!("more than {bytes_max} bytes");
        return Err(Input::new(got, "").at(path.display()).into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;
    use crate::io::test_folder::TestFolder;

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any 32 bytes are a seed")
    }

    fn public(pair: &Ed25519KeyPair) -> String {
        pem::encode("PUBLIC KEY", &[&SPKI[..], pair.public_key().as_ref()].concat())
    }

    #[test]
    fn only_what_the_key_signed_is_ours() {
        let place = TestFolder::new("release");
        let (ours, other) = (pair(1), pair(2));
        let program = place.write("edged", b"a program");
        let signature = place.write("edged.sig", ours.sign(b"a program").as_ref());
        let key = place.write("release.pub", public(&ours).as_bytes());
        assert_eq!(verify(&program, &signature, &key), Ok(()));
        // While one key replaces another, both are valid.
        let both = [public(&other), public(&ours)].concat();
        let both = place.write("both.pub", both.as_bytes());
        assert_eq!(verify(&program, &signature, &both), Ok(()));
        let foreign = place.write("other.pub", public(&other).as_bytes());
        let spoilt = place.write("spoilt", b"a program!");
        for (program, key) in [(&program, &foreign), (&spoilt, &key)] {
            let why = verify(program, &signature, key).expect_err("not signed by it").to_string();
            assert!(why.ends_with("edged.sig is not a signature of it by this key"), "{why}");
        }
    }

    #[test]
    fn files_have_bounds() {
        let place = TestFolder::new("release");
        let ours = pair(1);
        let signature = place.write("edged.sig", ours.sign(b"a program").as_ref());
        let mut text = public(&ours);
        let program = place.write("edged", b"a program");
        let pad = |text: &mut String, bytes: usize| {
            text.extend(std::iter::repeat_n('\n', bytes - text.len()));
        };
        pad(&mut text, RELEASE_KEYS_BYTES_MAX);
        let key = place.write("release.pub", text.as_bytes());
        assert_eq!(verify(&program, &signature, &key), Ok(()));
        pad(&mut text, RELEASE_KEYS_BYTES_MAX + 1);
        let long = place.write("long.pub", text.as_bytes());
        let why = verify(&program, &signature, &long).expect_err("too long").to_string();
        assert!(why.ends_with(&format!("got more than {RELEASE_KEYS_BYTES_MAX} bytes")), "{why}");
        let large = place.write("large", b"");
        let file = File::options().write(true).open(&large).expect("a file of ours");
        file.set_len(RELEASE_BYTES_MAX as u64 + 1).expect("a hole");
        let why = verify(&large, &signature, &key).expect_err("too large").to_string();
        assert!(why.ends_with(&format!("got more than {RELEASE_BYTES_MAX} bytes")), "{why}");
    }

    #[test]
    fn what_is_no_key_and_no_signature_is_reported() {
        let place = TestFolder::new("release");
        let ours = pair(1);
        let program = place.write("edged", b"a program");
        let signature = place.write("edged.sig", ours.sign(b"a program").as_ref());
        let key = place.write("release.pub", public(&ours).as_bytes());
        let short = place.write("short.sig", [0; 63]);
        let long = place.write("long.sig", [0; 65]);
        let empty = place.write("empty.pub", b"");
        // An invalid key must not be ignored because another key is valid.
        let ec = [public(&ours), pem::encode("PUBLIC KEY", &[0; 44])].concat();
        let ec = place.write("ec.pub", ec.as_bytes());
        let absent = place.join("absent");
        for (program, signature, key, expected) in [
            (&program, &short, &key, "got 63 bytes, expected a signature of 64"),
            (&program, &long, &key, "got more than 64 bytes"),
            (&program, &signature, &empty, "expected public keys of the kind Ed25519, as PEM"),
            (&program, &signature, &ec, "expected public keys of the kind Ed25519, as PEM"),
            (&program, &absent, &key, "No such file or directory (os error 2)"),
            (&program, &signature, &absent, "No such file or directory (os error 2)"),
            (&absent, &signature, &key, "No such file or directory (os error 2)"),
        ] {
            let why = verify(program, signature, key).expect_err(expected).to_string();
            assert!(why.ends_with(expected), "{why}");
        }
    }
}
