/* The cipher of GYRE_TCP_SECURITY=tls alone, by OpenSSL: rank 0 encrypts records of a buffer as TLS
 * 1.3 does, and at the same time rank 1 decrypts such records. Each prints a line of JSON with the
 * median rate of its passes over the buffer. For bench/compare/tls.py.
 *
 *     gyre run -n 2 tls_cipher BYTES SECONDS */
#include "bench/compare/timing.h"

#include <openssl/evp.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { max_record = 16 << 10, head_bytes = 5, tag_bytes = 16, nonce_bytes = 12, max_passes = 4096 };

struct Record {
  size_t text_bytes;
  unsigned char bytes[head_bytes + max_record + 1 + tag_bytes];
};

struct CipherJob {
  EVP_CIPHER_CTX* context;
  int seals;
  uint64_t number; /* of the next record */
};

static void need(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "tls_cipher: %s failed\n", what);
  exit(1);
}

static void begin_record(struct CipherJob* job, const unsigned char* head) {
  unsigned char nonce[nonce_bytes] = {7};
  int length = 0;
  memcpy(nonce + 4, &job->number, sizeof job->number);
  ++job->number;
  need(EVP_CipherInit_ex(job->context, NULL, NULL, NULL, nonce, job->seals), "a nonce");
  need(EVP_CipherUpdate(job->context, NULL, &length, head, head_bytes), "the head");
}

static void seal(struct CipherJob* job, const unsigned char* text, struct Record* record) {
  const size_t inner = record->text_bytes + 1;
  int length = 0, last = 0;
  memset(record->bytes, 23, head_bytes);
  begin_record(job, record->bytes);
  need(EVP_CipherUpdate(job->context, record->bytes + head_bytes, &length, text,
                        (int)record->text_bytes),
       "encryption");
  need(EVP_CipherUpdate(job->context, record->bytes + head_bytes + length, &last, record->bytes, 1),
       "encryption of the type");
  need(EVP_CipherFinal_ex(job->context, record->bytes + head_bytes + length + last, &last),
       "the end");
  need(EVP_CIPHER_CTX_ctrl(job->context, EVP_CTRL_AEAD_GET_TAG, tag_bytes,
                           record->bytes + head_bytes + inner),
       "the tag");
}

static void open_record(struct CipherJob* job, struct Record* record, unsigned char* text) {
  const size_t inner = record->text_bytes + 1;
  int length = 0;
  begin_record(job, record->bytes);
  need(EVP_CIPHER_CTX_ctrl(job->context, EVP_CTRL_AEAD_SET_TAG, tag_bytes,
                           record->bytes + head_bytes + inner),
       "the tag");
  need(EVP_CipherUpdate(job->context, text, &length, record->bytes + head_bytes, (int)inner),
       "decryption");
  need(EVP_CipherFinal_ex(job->context, text + length, &length), "the check");
}

/* Rank 0 encrypts its buffer. Rank 1 has the ciphertext of a whole buffer, and decrypts it with the
 * nonces that it had. */
static void pass(struct CipherJob* job, unsigned char* texts, struct Record* records,
                 size_t count) {
  job->number = 0;
  for (size_t i = 0; i < count; ++i) {
    /* Sealed records leave at once, by a buffer that is used again. */
    if (job->seals)
      seal(job, texts + i * (max_record + 1), &records[0]);
    else
      open_record(job, &records[i], texts + i * (max_record + 1));
  }
}

int main(int argc, char** argv) {
  const char* const rank = getenv("GYRE_RANK");
  if (argc != 3 || rank == NULL) {
    fprintf(stderr, "gyre run -n 2 tls_cipher BYTES SECONDS\n");
    return 2;
  }
  const size_t bytes = (size_t)atol(argv[1]), count = (bytes + max_record - 1) / max_record;
  const double seconds = atof(argv[2]);
  static const unsigned char key[16] = {1, 2, 3};
  static double times[max_passes];
  struct Record* const records = calloc(count, sizeof *records);
  unsigned char* const texts = calloc(count, max_record + 1);
  struct CipherJob job = {EVP_CIPHER_CTX_new(), 1, 0};
  if (records == NULL || texts == NULL || count == 0) return 1;
  need(EVP_CipherInit_ex(job.context, EVP_aes_128_gcm(), NULL, key, NULL, 1), "AES-128-GCM");
  for (size_t i = 0; i < count; ++i) {
    records[i].text_bytes = i + 1 < count ? max_record : bytes - i * max_record;
    seal(&job, texts + i * (max_record + 1), &records[i]);
  }
  job.seals = atoi(rank) == 0;
  if (!job.seals)
    need(EVP_CipherInit_ex(job.context, EVP_aes_128_gcm(), NULL, key, NULL, 0), "AES-128-GCM");
  records[0].text_bytes = count > 1 ? max_record : bytes;
  int passes = 0;
  for (const double end = now_us() + seconds * 1e6; now_us() < end && passes < max_passes;) {
    const double began = now_us();
    pass(&job, texts, records, count);
    times[passes++] = now_us() - began;
  }
  printf("{\"rank\": %s, \"bytes\": %zu, \"megabytes_per_s\": %.2f}\n", rank, bytes,
         (double)bytes / median(times, passes));
  EVP_CIPHER_CTX_free(job.context);
  free(texts);
  free(records);
  return 0;
}
