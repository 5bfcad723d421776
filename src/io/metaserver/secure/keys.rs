//! The keys that sign tokens of service accounts (`serviceAccountKeyFiles`), and the token of a
//! request: read, and its signature verified.

use std::path::Path;

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};

use crate::io::cloud::files;
use crate::limits::JWT_KEYS_MAX;
use crate::model::metaserver::{Authorization, Bearer, Caller, Failure};
use crate::model::token;
use crate::wire::http1::call::Call;
use crate::wire::jwt;
use crate::wire::x509::{PublicKey, pem, public_key_of};

/// The keys of all files.
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<PublicKey>);

impl Keys {
    /// Reads the files. One that cannot be read is reported, and left out: tokens that this node
    /// has handed out are known without it.
    pub(super) fn read(settings: &Authorization) -> Self {
        let (keys, trouble) = Self::read_all(settings);
        for why in trouble {
            log::warn!("MetaServer verifies no token with the keys of {why}");
        }
        keys
    }

    /// The keys, and which files cannot be read, and why.
    pub(super) fn read_all(settings: &Authorization) -> (Self, Vec<String>) {
        let (mut keys, mut trouble) = (Self::default(), Vec::new());
        for path in &settings.key_files {
            if let Err(why) = keys.add(Path::new(&**path)) {
                trouble.push(format!("{path}: {why}"));
            }
        }
        (keys, trouble)
    }

    fn add(&mut self, path: &Path) -> Result<(), String> {
        let text = files::read(path).map_err(|error| error.to_string())?;
        let blocks = pem::decode(&text).map_err(|fault| fault.to_string())?;
        if blocks.is_empty() {
            return Err("expected a PEM block PUBLIC KEY, got none".to_owned());
        }
        for block in blocks {
            if self.0.len() >= JWT_KEYS_MAX {
                return Err(format!("expected {JWT_KEYS_MAX} keys at most"));
            }
            self.0.push(public_key_of(&block).map_err(|fault| fault.why)?);
        }
        Ok(())
    }

    /// Whether one of the keys has signed it.
    fn verify(&self, jwt: &jwt::Jwt<'_>) -> bool {
        self.0.iter().any(|key| {
            let (algorithm, bytes): (&dyn VerificationAlgorithm, _) = match (key, &*jwt.algorithm) {
                (PublicKey::Rsa(der), "RS256") => (&RSA_PKCS1_2048_8192_SHA256, der),
                (PublicKey::P256(point), "ES256") => (&ECDSA_P256_SHA256_FIXED, point),
                _ => return false,
            };
            let key = UnparsedPublicKey::new(algorithm, bytes);
            key.verify(jwt.signed.as_bytes(), &jwt.signature).is_ok()
        })
    }

    /// Who sends this request.
    pub(super) fn caller(&self, request: &Call) -> Result<Caller, Failure> {
        let header = request.header("authorization");
        if header.is_empty() {
            return Ok(Caller::Anonymous);
        }
        let unauthorized =
            |why: &str| Failure::new(401, "Unauthorized", format!("Unauthorized: {why}"));
        let (scheme, given) = header.split_once(' ').unwrap_or((header, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthorized("expected Authorization: Bearer and a token"));
        }
        let given = given.trim();
        let jwt = jwt::read(given).map_err(|why| unauthorized(&format!("the token: {why}")))?;
        let is_signed = self.verify(&jwt);
        let digest = token::digest(given).into();
        Ok(Caller::Bearer(Box::new(Bearer { digest, is_signed, claims: jwt.claims })))
    }
}
