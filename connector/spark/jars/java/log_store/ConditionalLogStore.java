package lakelock;

import io.delta.storage.CloseableIterator;
import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's commits on S3 as conditional writes: {@code PUT} with {@code If-None-Match: *}.
 *
 * <p>Delta's own store for S3 looks whether the commit is there and then writes it without a condition, so that of two
 * drivers the later one replaces the commit of the earlier, which was told that all went well. Here the object store
 * decides. Where S3A can't ask it to (before Hadoop 3.4.2, or switched off), the write fails.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
  private static final int ATTEMPTS = 3;

  public ConditionalLogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
      throws IOException {
    if (overwrite) {
      super.write(path, actions, overwrite, hadoopConf);
      return;
    }
    FileSystem files = path.getFileSystem(hadoopConf);
    byte[] commit = lines(actions);
    for (int attempt = 1; ; attempt++) {
      try {
        create(files, path, commit);
        return;
      } catch (IOException failed) {
        // A timeout is one for Java, and for S3A too: it says as little of what the store has done as a lost connection.
        if (failed instanceof InterruptedIOException && !(failed instanceof SocketTimeoutException)) {
          throw failed;
        }
        // Refused, or done and the answer lost, or asked again by S3A and refused for the first request's sake: what
        // is there tells. A commit's txnId makes its bytes like no other's.
        byte[] there = read(files, path, commit.length);
        if (there != null && Arrays.equals(there, commit)) {
          return;
        }
        if (there != null) {
          FileAlreadyExistsException lost = new FileAlreadyExistsException(path.toString());
          lost.initCause(failed);
          throw lost;
        }
        // S3 also refuses (409) while another write is on its way, which then may fail. The same bytes under the same
        // condition can be sent any number of times.
        if (attempt == ATTEMPTS) {
          throw failed;
        }
        sleep(100L << attempt);
      }
    }
  }

  private static void create(FileSystem files, Path path, byte[] commit) throws IOException {
    FSDataOutputStream out =
        (FSDataOutputStream) files.createFile(path).recursive().must(CONDITIONAL, true).build();
    // The object is made by close, as a whole. Not closed after a failed write: it would publish half a commit.
    out.write(commit);
    out.close();
  }

  private static void sleep(long millis) throws InterruptedIOException {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException(stopped.getMessage());
    }
  }

  private static byte[] lines(Iterator<String> actions) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    while (actions.hasNext()) {
      bytes.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
    }
    if (actions instanceof CloseableIterator) {
      ((CloseableIterator<String>) actions).close();
    }
    return bytes.toByteArray();
  }

  /** The first {@code length + 1} bytes of what is there, all that a comparison needs; null where nothing is. */
  private static byte[] read(FileSystem files, Path path, int length) throws IOException {
    try (FSDataInputStream in = files.open(path)) {
      byte[] read = new byte[length + 1];
      int got = 0;
      for (int more = 0; more >= 0 && got < read.length; more = in.read(read, got, read.length - got)) {
        got += more;
      }
      return Arrays.copyOf(read, got);
    } catch (FileNotFoundException nothing) {
      return null;
    }
  }
}
