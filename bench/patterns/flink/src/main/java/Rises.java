import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;

/**
 * Finds a rise after a large trade, with no fall right after it, by FlinkCEP with parallelism 1.
 *
 * <p>Each line of its input is an order: the file of trades as JSON lines, the file for the matches, and the least rise
 * as a factor, separated by tabs. When a job has ended, a line says how long it took from the first trade that was read
 * until the matches were written.
 */
public final class Rises {
    private static final long LARGE_SHARES = 1_000;
    /** A window of FlinkCEP ends before this time has passed; the pattern's includes the last millisecond. */
    private static final Duration WITHIN = Duration.ofSeconds(60).plusMillis(1);
    private static final Duration AFTERWARDS = Duration.ofSeconds(10).plusMillis(1);

    /** When the job of this process has read its first trade, and when it has written all matches; 0: not yet. */
    private static volatile long begunNs;
    private static volatile long endedNs;

    private Rises() {}

    public static void main(String[] args) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split("\t");
            begunNs = 0;
            endedNs = 0;
            run(words[0], words[1], Double.parseDouble(words[2]));
            System.out.printf(Locale.ROOT, "took_s %.6f%n", (endedNs - begunNs) / 1e9);
            System.out.flush();
        }
    }

    private static void run(String input, String output, double rise) throws Exception {
        // Trades must be serialized as plain fields; else the job fails instead of being slow.
        Configuration how = new Configuration().set(PipelineOptions.GENERIC_TYPES, false);
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(1, how);
        FileSource<String> lines =
                FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path(input)).build();
        DataStream<Trade> trades = flink.fromSource(lines, WatermarkStrategy.noWatermarks(), "lines")
                .map(new Parse())
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Trade>forMonotonousTimestamps()
                        .withTimestampAssigner((trade, before) -> trade.ms));
        CEP.pattern(trades.keyBy(trade -> trade.symbol), pattern(rise))
                .process(new AsLine())
                .sinkTo(new File(output));
        flink.execute();
    }

    /** Returns the pattern: each step takes the first trade that meets its condition, and attempts overlap. */
    private static Pattern<Trade, ?> pattern(double rise) {
        return Pattern.<Trade>begin("large", AfterMatchSkipStrategy.noSkip())
                .where(SimpleCondition.of(trade -> trade.shares >= LARGE_SHARES))
                .followedBy("rise")
                .where(new ByFirst((trade, large) -> trade.price >= rise * large.price))
                .within(WITHIN, WithinType.PREVIOUS_AND_CURRENT)
                .notFollowedBy("fall")
                .where(new ByFirst((trade, large) -> trade.price < large.price))
                .within(AFTERWARDS, WithinType.PREVIOUS_AND_CURRENT);
    }

    /** A line of the input. */
    public static class Trade {
        public long number;
        public long ms;
        public String symbol;
        public double price;
        public long shares;

        /** Takes the time as the line has it. */
        public void setAt(String at) {
            ms = Instant.parse(at).toEpochMilli();
        }
    }

    /** Reads a line. */
    private static class Parse implements MapFunction<String, Trade> {
        private transient ObjectReader reader;

        @Override
        public Trade map(String line) throws IOException {
            if (reader == null) {
                reader = new ObjectMapper().readerFor(Trade.class);
                begunNs = System.nanoTime();
            }
            return reader.readValue(line);
        }
    }

    /** A condition on a trade and the large one. */
    private interface Comparison extends Serializable {
        boolean holds(Trade trade, Trade large);
    }

    /** A condition that reads the large trade. */
    private static class ByFirst extends IterativeCondition<Trade> {
        private final Comparison comparison;

        ByFirst(Comparison comparison) {
            this.comparison = comparison;
        }

        @Override
        public boolean filter(Trade trade, Context<Trade> context) throws Exception {
            return comparison.holds(trade, context.getEventsForPattern("large").iterator().next());
        }
    }

    /** Writes a match as JSON. */
    private static class AsLine extends PatternProcessFunction<Trade, String> {
        @Override
        public void processMatch(Map<String, List<Trade>> match, Context context, Collector<String> out) {
            Trade large = match.get("large").get(0);
            Trade rise = match.get("rise").get(0);
            out.collect("{\"large\":" + large.number + ",\"rise\":" + rise.number + ",\"before\":" + large.price
                    + ",\"after\":" + rise.price + "}");
        }
    }

    /** A file of lines. */
    private record File(String path) implements Sink<String> {
        @Override
        public SinkWriter<String> createWriter(WriterInitContext context) throws IOException {
            BufferedWriter lines = Files.newBufferedWriter(java.nio.file.Path.of(path));
            return new SinkWriter<>() {
                @Override
                public void write(String line, Context ignored) throws IOException {
                    lines.write(line);
                    lines.newLine();
                }

                @Override
                public void flush(boolean isEnd) throws IOException {
                    lines.flush();
                    if (isEnd) {
                        endedNs = System.nanoTime();
                    }
                }

                @Override
                public void close() throws IOException {
                    lines.close();
                }
            };
        }
    }
}
