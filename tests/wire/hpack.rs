//! RFC 7541 appendix C, and hostile header blocks.

use edged::wire::hpack::{Decoder, Error, FieldList, encode, encode_table_size};

use crate::golden::{self, hex};

const LIST_BYTES: usize = 16_384;

fn pairs(list: &FieldList) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    list.iter().map(|field| (text(&field.name), text(&field.value))).collect()
}

/// Decodes block after block with one decoder and compares each with its fields.
fn check(table_bytes: usize, blocks: &[(&str, &[(&str, &str)])]) {
    let mut decoder = Decoder::new(table_bytes, LIST_BYTES);
    for (block, expected) in blocks {
        let list = decoder.decode(&hex(block)).unwrap();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert_eq!(pairs(&list), expected, "{block}");
    }
}

fn error(table_bytes: usize, block: &str) -> Error {
    Decoder::new(table_bytes, LIST_BYTES).decode(&hex(block)).unwrap_err()
}

#[test]
fn literals_of_rfc_7541_appendix_c_2() {
    check(
        4096,
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            &[("custom-key", "custom-header")],
        )],
    );
    check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")])]);
    check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")])]);
    check(4096, &[("82", &[(":method", "GET")])]);
}

const REQUESTS: [&[(&str, &str)]; 3] = [
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
];

#[test]
fn requests_of_rfc_7541_appendix_c_3_and_c_4() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, huffman] {
        check(4096, &std::array::from_fn::<_, 3, _>(|n| (blocks[n], REQUESTS[n])));
    }
}

const RESPONSES: [&[(&str, &str)]; 3] = [
    &[
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    &[
        (":status", "307"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    &[
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
];

/// The table holds 256 bytes there, so entries are evicted between the blocks.
#[test]
fn responses_of_rfc_7541_appendix_c_5_and_c_6() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
         3d31",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, huffman] {
        check(256, &std::array::from_fn::<_, 3, _>(|n| (blocks[n], RESPONSES[n])));
    }
}

/// Every header block of the captures, compared with their own tool's decoding. The table belongs
/// to a connection, so the decoder does too.
#[test]
fn real_servers_header_blocks() {
    let mut blocks = 0;
    let mut check = |table_bytes, text: &str| {
        let mut decoder = Decoder::new(table_bytes, LIST_BYTES);
        for frame in golden::frames(text).iter().filter(|frame| frame.kind == 1) {
            assert_eq!(pairs(&decoder.decode(&frame.payload).unwrap()), frame.fields);
            blocks += 1;
        }
    };
    for file in golden::CONNECTIONS {
        check(0, &golden::text(file));
    }
    for file in golden::SECTIONS {
        for (table_bytes, name) in [(4096, "A"), (0, "F"), (4096, "J"), (0, "L")] {
            check(table_bytes, &golden::section(file, name));
        }
    }
    assert!(blocks > 60, "the captures have {blocks} blocks, expected more");
}

#[test]
fn what_is_encoded_decodes_to_itself() {
    let long = "x".repeat(70_000);
    let fields = [(":path", "/a/b"), ("te", ""), ("long", long.as_str()), ("edge", &long[..127])];
    let mut block = Vec::new();
    encode_table_size(0, &mut block);
    encode_table_size(300, &mut block);
    for (name, value) in fields {
        encode(name, value, &mut block);
    }
    let list = Decoder::new(300, 1 << 20).decode(&block).unwrap();
    let expected: Vec<(String, String)> =
        fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    assert_eq!(pairs(&list), expected);
    assert_eq!(list.first("te"), Some(&b""[..]));
    assert_eq!(list.first("absent"), None);
}

#[test]
fn a_block_cut_anywhere_is_an_error_or_a_shorter_list() {
    for block in ["4803 3330 3258 0770 7269 7661 7465", "4882 6402 5885 aec3 771a 4b", "7f80 01"] {
        let block = hex(block);
        for cut in 0..block.len() {
            let _ = Decoder::new(256, LIST_BYTES).decode(&block[..cut]);
        }
    }
}

#[test]
fn integers_have_an_end() {
    assert_eq!(error(0, "ff"), Error::IntegerCut);
    assert_eq!(error(0, "ff80"), Error::IntegerCut);
    assert_eq!(error(0, "ff8080808080"), Error::IntegerTooLarge);
    assert_eq!(error(0, "ffffffffff7f"), Error::IntegerTooLarge);
    // 2^32-1 is read, and is no index.
    assert_eq!(error(0, "ff80ffffff0f"), Error::IndexUnknown { got: u32::MAX, max: 61 });
    assert_eq!(error(0, "ff81ffffff0f"), Error::IntegerTooLarge);
}

#[test]
fn strings_stay_inside_the_block() {
    assert_eq!(error(0, "00"), Error::StringCut { expected_bytes: 1, got_bytes: 0 });
    assert_eq!(error(0, "000561"), Error::StringCut { expected_bytes: 5, got_bytes: 1 });
    let huge = Error::StringCut { expected_bytes: 4_026_531_839, got_bytes: 0 };
    assert_eq!(error(0, "007f80ffffff0e"), huge);
}

#[test]
fn indexes_are_in_one_of_the_tables() {
    assert_eq!(error(0, "80"), Error::IndexUnknown { got: 0, max: 61 });
    assert_eq!(error(4096, "be"), Error::IndexUnknown { got: 62, max: 61 });
    assert_eq!(error(0, "0fff0100"), Error::IndexUnknown { got: 270, max: 61 });
    // Index 62 exists in the second field, and 63 does not.
    assert_eq!(error(4096, "400161 0162 be bf"), Error::IndexUnknown { got: 63, max: 62 });
    // With a table of size zero nothing is kept, as the size update of real servers has it.
    assert_eq!(error(0, "20 400161 0162 be"), Error::IndexUnknown { got: 62, max: 61 });
}

#[test]
fn the_table_size_is_ours_to_announce() {
    assert_eq!(error(100, "3f46"), Error::TableSizeTooLarge { got_bytes: 101, max_bytes: 100 });
    assert_eq!(error(100, "82 20"), Error::TableSizeLate);
    let mut decoder = Decoder::new(100, LIST_BYTES);
    decoder.decode(&hex("400161 0162")).unwrap();
    // Shrinking evicts; growing again restores nothing.
    let gone = decoder.decode(&hex("20 3f45 be")).unwrap_err();
    assert_eq!(gone, Error::IndexUnknown { got: 62, max: 61 });
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(40, LIST_BYTES);
    decoder.decode(&hex("400161 0162")).unwrap();
    assert_eq!(pairs(&decoder.decode(&hex("be")).unwrap()), [("a".to_owned(), "b".to_owned())]);
    let large = decoder.decode(&hex("400161 0a62626262626262626262")).unwrap();
    assert_eq!(pairs(&large), [("a".to_owned(), "bbbbbbbbbb".to_owned())]);
    assert_eq!(
        decoder.decode(&hex("be")).unwrap_err().to_string(),
        "header index is 62, expected 1 to 61"
    );
}

/// The name of the new entry may be that of the entry which has to go for it.
#[test]
fn a_name_may_come_from_the_entry_it_evicts() {
    let mut decoder = Decoder::new(40, LIST_BYTES);
    decoder.decode(&hex("400161 0162")).unwrap();
    let list = decoder.decode(&hex("7e0163 be")).unwrap();
    let field = ("a".to_owned(), "c".to_owned());
    assert_eq!(pairs(&list), [field.clone(), field]);
}

#[test]
fn huffman_padding_is_short_and_all_ones() {
    // "a" is 00011; with padding 111.
    check(0, &[("0081 1f 81 1f", &[("a", "a")])]);
    assert_eq!(error(0, "0081 1e 0162"), Error::HuffmanPadding);
    assert_eq!(error(0, "0082 1fff 0162"), Error::HuffmanPadding);
    assert_eq!(error(0, "0084 ffffffff 0162"), Error::HuffmanEos);
    assert_eq!(error(0, "0083 ffffff 0162"), Error::HuffmanPadding);
}

/// Beyond the bound fields are dropped, but the table goes on, and smaller fields still fit.
#[test]
fn a_long_list_is_cut_and_the_table_is_kept() {
    let mut decoder = Decoder::new(4096, 100);
    let mut block = hex("40 0161 7f01");
    block.extend([b'x'; 128]);
    block.extend(hex("400162 0163"));
    let list = decoder.decode(&block).unwrap();
    assert_eq!((pairs(&list), list.dropped()), (vec![("b".to_owned(), "c".to_owned())], 1));
    assert_eq!(list.size_bytes(), 34);
    let list = decoder.decode(&hex("be bf")).unwrap();
    assert_eq!((list.iter().count(), list.dropped()), (1, 1));
}

/// One byte per field, each a long entry of the table: the list must not grow with them.
#[test]
fn a_bomb_of_indexes_stays_small() {
    let mut decoder = Decoder::new(4096, LIST_BYTES);
    let mut block = hex("40 0161 7f811e");
    block.extend([b'x'; 3968]);
    block.extend(vec![0xbe; 100_000]);
    let list = decoder.decode(&block).unwrap();
    assert!(list.size_bytes() <= LIST_BYTES);
    assert_eq!(list.dropped() + list.iter().count(), 100_001);
}
