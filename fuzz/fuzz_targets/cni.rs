//! `wire::cni`: a network that is read gives plugins JSON and comes back from what is kept; results
//! and errors of plugins, whatever they are, are read or refused with words.
#![no_main]

use edged::model::cri::SandboxConfig;
use edged::wire::cni::{Attachment, Network, addresses, failure, result};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!(!failure(bytes, bytes).is_empty());
    let result = result(bytes).inspect(|result| drop(addresses(result))).ok();
    let _ = Attachment::decode(bytes);
    let network = match Network::parse(bytes) {
        Ok(network) => network,
        Err(refusal) => return assert!(!refusal.to_string().is_empty()),
    };
    let config = SandboxConfig::default();
    for plugin in network.chain(&config) {
        let input = network.input(plugin, &config, result.as_ref()).expect("nothing is asked for");
        assert!(serde_json::from_slice::<serde_json::Value>(&input).is_ok());
    }
    let _ = network.masqueraded();
    let kept = Attachment { network, result };
    assert_eq!(Attachment::decode(&kept.encode()), Ok(kept));
});
